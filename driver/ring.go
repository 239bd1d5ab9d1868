package driver

import (
	"context"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
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
	table      placeTable
}

// CreateRing creates a ring, which is not connected. It fails with ErrNotSupported if the
// device has no rings, with ErrResource if its memory has no room for this one, and with
// ErrInvalidParameter, ErrInvalidMTU, ErrInvalidPtag or ErrInvalidReliability.
func (n *NIC) CreateRing(ctx context.Context, a RingAttributes) (*Ring, error) {
	return get(ctx, n.do, "create ring", func() (*Ring, error) {
		if n.identity.Features&datasheet.FeatureRing == 0 {
			return nil, hinted(fmt.Errorf("%w: rings", descriptors.ErrNotSupported), "this device has no memory of its own")
		}
		for _, depth := range []int{a.SendDepth, a.RecvDepth} {
			if depth < 1 || depth > n.identity.MaxQueueDepth {
				return nil, hinted(fmt.Errorf("%w: ring of %d entries", descriptors.ErrInvalidParameter, depth),
					fmt.Sprintf("this device has rings of 1 to %d", n.identity.MaxQueueDepth))
			}
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
	r.Send.init(r, "send")
	r.Recv.init(r, "receive")
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
	if err := n.checkPieces(created, a); err != nil {
		return nil, n.fail(err)
	}
	page := datasheet.EndpointPage(created.Endpoint) + datasheet.DoorbellRing
	r.Send.place(uint64(created.Send), a.SendDepth, n.doorbellAt(page+datasheet.DoorbellSend), n.doorbellAt(page+datasheet.DoorbellSendArm))
	r.Recv.place(uint64(created.Recv), a.RecvDepth, n.doorbellAt(page+datasheet.DoorbellRecv), n.doorbellAt(page+datasheet.DoorbellRecvArm))
	r.table.init(n, uint64(created.Table))
	r.Send.path = n.path(r.number)
	r.Recv.path = r.Send.path
	return r, nil
}

// checkPieces checks that the pieces of device memory that the device has given a ring are
// device memory, aligned, and do not overlap.
func (n *NIC) checkPieces(c *datasheet.EndpointCreated, a RingAttributes) error {
	pieces := []struct {
		name     string
		at, size uint64
	}{
		{"send ring", uint64(c.Send), uint64(a.SendDepth) * datasheet.RingSlotSize},
		{"receive ring", uint64(c.Recv), uint64(a.RecvDepth) * datasheet.RingSlotSize},
		{"payload table", uint64(c.Table), datasheet.PayloadEntries * datasheet.RingPlaceSize},
	}
	for i, p := range pieces {
		if err := n.checkSRAM(p.at, int(p.size)); err != nil {
			return fmt.Errorf("%w: it gave out a %s: %w", ErrProtocol, p.name, err)
		}
		if p.at%datasheet.DescriptorAlign != 0 {
			return fmt.Errorf("%w: it gave out a %s at %#x, which is not aligned", ErrProtocol, p.name, p.at)
		}
		for _, q := range pieces[:i] {
			if p.at < q.at+q.size && q.at < p.at+p.size {
				return fmt.Errorf("%w: it gave out a %s that overlaps the %s", ErrProtocol, p.name, q.name)
			}
		}
	}
	return nil
}

// Attributes returns what the ring was created with, depths rounded up.
func (r *Ring) Attributes() RingAttributes { return r.attributes }

// Mapped reports whether the rings are mapped, so that RingQueue.Message has something to return.
func (r *Ring) Mapped() bool { return r.Send.slots != nil && r.Recv.slots != nil }

func (r *Ring) refuse(yes bool) {
	r.Send.refuse(yes)
	r.Recv.refuse(yes)
}

func (r *Ring) close() {
	r.Send.close()
	r.Recv.close()
	r.table.close()
}

func (r *Ring) holds(handle uint32) bool {
	return slices.ContainsFunc([]*RingQueue{&r.Send, &r.Recv}, func(q *RingQueue) bool { return q.holds(handle) }) || r.table.holds(handle)
}

// Wait is RingQueue.Wait for both rings: until one of them has something to take. It fails
// with ErrQueueEmpty, bare, if nothing is posted.
func (r *Ring) Wait(ctx context.Context, early *Signal) error {
	return r.waitUntil(ctx, "wait for ring", early, r, func() (bool, error) {
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

// waitUntil waits until ready says so.
func (r *Ring) waitUntil(ctx context.Context, op string, early *Signal, a armer, ready func() (bool, error)) error {
	if ctx == nil {
		return r.n.noContext(op)
	}
	w := waiter{n: r.n, ctx: ctx, done: r.n.done}
	for {
		if there, err := ready(); there || early.Clear() {
			return err
		}
		if err := w.pause(a, r.vec, early.C()); err != nil {
			return r.n.error(op, err)
		}
	}
}

// arm asks for an interrupt when either ring completes more than has been taken.
func (r *Ring) arm(ctx context.Context) error {
	if err := r.Send.arm(ctx); err != nil {
		return err
	}
	return r.Recv.arm(ctx)
}
