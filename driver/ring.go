package driver

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// RingAttributes of a ring.
type RingAttributes struct {
	// Reliability is Unreliable, as in the Trapeze papers, or one of the levels of a VI.
	Reliability datasheet.Reliability
	Ptag        *Ptag // nil is the NIC's default
	// MaxPayload is the largest payload of a message in bytes, 0 to the device's
	// MaxTransfer less RingMessage. Both ends of a connection must have the same.
	MaxPayload uint32
	// SendDepth and RecvDepth are the entries of the two rings, 1 to the device's limit.
	// CreateRing rounds them up to powers of two of at least 2.
	SendDepth, RecvDepth int
}

// Ring is an endpoint of kind Ring (SPEC.md 15): a send and a receive ring of control
// messages in device memory, with payloads in registered memory. Methods may be called from
// several goroutines; who fills which entry is for the caller to arrange.
//
// Entries of each ring have free-running numbers, from 0: entry i stands in slot i modulo
// the depth. The program puts entries in order, posts them in order, and takes them back in
// order.
type Ring struct {
	endpoint
	// Send and Recv are the two rings. They are the ring's own: use their methods.
	Send, Recv RingQueue

	attributes RingAttributes
	vec        *vector // of both rings

	// The payload table (SPEC.md 15), which the host writes itself.
	mu      sync.Mutex
	places  []datasheet.RingPlace
	handles [datasheet.PayloadEntries]uint32
	closed  bool
}

// CreateRing creates a ring, which is not connected. It fails with ErrNotSupported if the
// device has no rings, with ErrResource if its memory has no room for this one, and with
// ErrInvalidParameter, ErrInvalidMTU, ErrInvalidPtag or ErrInvalidReliability.
func (n *NIC) CreateRing(ctx context.Context, a RingAttributes) (*Ring, error) {
	return get(ctx, n.do, "create ring", func() (*Ring, error) {
		if !n.hasSRAM(datasheet.FeatureRing) {
			return nil, hinted(fmt.Errorf("%w: rings", descriptors.ErrNotSupported), noSRAM)
		}
		if err := n.checkDepths(a.SendDepth, a.RecvDepth); err != nil {
			return nil, err
		}
		if limit := n.MaxPayload(); a.MaxPayload > limit {
			return nil, hinted(fmt.Errorf("%w: payloads of %d bytes", descriptors.ErrInvalidMTU, a.MaxPayload),
				fmt.Sprintf("this device takes up to %d", limit))
		}
		a.Ptag = n.ptagOr(a.Ptag)
		if err := a.Ptag.use(n); err != nil {
			return nil, err
		}
		defer a.Ptag.leave() // the NIC knows from here on that it is in use
		return n.createRing(ctx, a)
	})
}

// MaxPayload is the largest payload in bytes of a ring's message.
func (n *NIC) MaxPayload() uint32 {
	return max(n.identity.MaxTransfer, datasheet.RingMessage) - datasheet.RingMessage
}

func (n *NIC) createRing(ctx context.Context, a RingAttributes) (*Ring, error) {
	sendLog2, recvLog2 := ringLog2(a.SendDepth), ringLog2(a.RecvDepth)
	a.SendDepth, a.RecvDepth = 1<<sendLog2, 1<<recvLog2
	r := &Ring{endpoint: endpoint{n: n, what: "ring"}, attributes: a}
	r.queues, r.vec = r, n.pickVector()
	r.Send.init(&r.endpoint, true, r.vec, a.Reliability, a.MaxPayload)
	r.Recv.init(&r.endpoint, false, r.vec, a.Reliability, a.MaxPayload)
	reply, err := n.execute(ctx, newCommand(datasheet.OpCreateEndpoint, datasheet.CreateEndpointBody{
		Ptag: a.Ptag.Number(), MaxTransfer: datasheet.RingMessage + a.MaxPayload, SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ,
		SendVector: vectorNumber(r.vec), RecvVector: vectorNumber(r.vec),
		Kind: datasheet.KindRing, Reliability: a.Reliability, SendLog2: sendLog2, RecvLog2: recvLog2,
	}))
	if err != nil {
		return nil, err
	}
	created := datasheet.Reply[datasheet.EndpointCreated](reply)
	if err := n.adopt(&r.endpoint, created.Endpoint, false); err != nil {
		return nil, err
	}
	if err := r.layOut(created); err != nil {
		return nil, n.fail(err)
	}
	r.Send.path = n.path(r.number)
	r.Recv.path = r.Send.path
	return r, nil
}

// layOut finds the pieces of device memory that the device has given the ring, which must not overlap.
func (r *Ring) layOut(c *datasheet.EndpointCreated) (err error) {
	var send, recv, table []byte
	pieces := []struct {
		name     string
		at, size uint64
		memory   *[]byte
	}{
		{"send ring", uint64(c.Send), uint64(r.attributes.SendDepth) * datasheet.RingSlotSize, &send},
		{"receive ring", uint64(c.Recv), uint64(r.attributes.RecvDepth) * datasheet.RingSlotSize, &recv},
		{"payload table", uint64(c.Table), datasheet.PayloadEntries * datasheet.RingPlaceSize, &table},
	}
	for i, p := range pieces {
		if *p.memory, err = r.n.givenSRAM(p.name, p.at, p.size, datasheet.DescriptorAlign); err != nil {
			return err
		}
		for _, q := range pieces[:i] {
			if p.at < q.at+q.size && q.at < p.at+p.size {
				return fmt.Errorf("%w: it gave out a %s that overlaps the %s", ErrProtocol, p.name, q.name)
			}
		}
	}
	r.places = datasheet.RingPlacesAt(table)
	page := datasheet.EndpointPage(c.Endpoint) + datasheet.DoorbellRing
	r.Send.place(send, r.n.doorbellAt(page+datasheet.DoorbellSend), r.n.doorbellAt(page+datasheet.DoorbellSendArm))
	r.Recv.place(recv, r.n.doorbellAt(page+datasheet.DoorbellRecv), r.n.doorbellAt(page+datasheet.DoorbellRecvArm))
	return nil
}

// Attributes returns what the ring was created with, depths rounded up.
func (r *Ring) Attributes() RingAttributes { return r.attributes }

func (r *Ring) refuse(yes bool) {
	r.Send.refuse(yes)
	r.Recv.refuse(yes)
}

func (r *Ring) close() {
	r.Send.close()
	r.Recv.close()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

func (r *Ring) holds(handle uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Send.holds(handle) || r.Recv.holds(handle) || !r.closed && slices.Contains(r.handles[:], handle)
}

// Wait is RingQueue.Wait for both rings: until one of them has something to take. It fails
// with ErrQueueEmpty, bare, if nothing is posted.
func (r *Ring) Wait(ctx context.Context, early *Signal) error {
	return r.n.waitUntil(ctx, "wait for ring", early, r, r.vec, func() (bool, error) {
		there, err := r.Recv.ready()
		if there && err != descriptors.ErrQueueEmpty {
			return there, err
		}
		also, sent := r.Send.ready()
		if also && sent == descriptors.ErrQueueEmpty {
			return there, err
		}
		return also, sent
	})
}

// arm asks for an interrupt when either ring completes more than has been taken.
func (r *Ring) arm(ctx context.Context) error {
	if err := r.Send.arm(ctx); err != nil {
		return err
	}
	return r.Recv.arm(ctx)
}

// SetPlace has the payload of the next message with tag land at p, whatever entry of the
// receive ring takes the message; the entry of the table is tag modulo PayloadEntries. It
// is a few stores. A payload that is longer than p is discarded. Use a tag once, so that a
// message that comes late finds its tag withdrawn.
//
// The zero p withdraws the tag. A message that comes later finds nothing; the payload of one
// that has begun to come may still land where it was to: see EndPlace.
func (r *Ring) SetPlace(tag uint32, p datasheet.DataSegment) error {
	const op = "set place"
	i := tag % datasheet.PayloadEntries
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return r.n.error(op, descriptors.ErrClosed)
	}
	r.handles[i] = p.Handle
	e := &r.places[i]
	// What RingPlace.Store does, for memory that may be write-combining. The last word is on its way with
	// the next doorbell.
	mmio.Write32(&e.Handle, 0)
	mmio.FlushWriteCombining()
	if p.Handle == 0 {
		return nil
	}
	mmio.Write32(&e.Tag, tag)
	mmio.FlushWriteCombining()
	mmio.Write32(&e.Length, p.Length)
	mmio.Write64(&e.Address, p.Address)
	mmio.FlushWriteCombining()
	mmio.Write32(&e.Handle, p.Handle)
	return nil
}

// EndPlace withdraws a tag as SetPlace does, and has the device let go of the memory:
// when it returns nothing more lands there, and the rest of a payload that is on its way is
// discarded. It is a command, and no part of the data path.
func (r *Ring) EndPlace(ctx context.Context, tag uint32) error {
	return r.do(ctx, "end place", func() error {
		if err := r.SetPlace(tag, datasheet.DataSegment{}); err != nil {
			return err
		}
		_, err := r.execute(ctx, newCommand(datasheet.OpSetPayload, datasheet.SetPayloadBody{
			Endpoint: r.number, Entry: tag % datasheet.PayloadEntries}))
		return err
	})
}
