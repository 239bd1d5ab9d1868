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
	Ptag        uint32
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
	attributes RingAttributes
	vec        *vector // of both rings
	send, recv ringQueue
	table      placeTable
}

// CreateRing creates a ring, which is not connected. It fails with ErrNotSupported if the
// device has no rings, with ErrResource if its memory has no room for this one, and with
// ErrInvalidParameter, ErrInvalidMTU, ErrInvalidPtag or ErrInvalidReliability.
func (n *NIC) CreateRing(ctx context.Context, a RingAttributes) (*Ring, error) {
	const op = "create ring"
	if err := n.begin(ctx, op); err != nil {
		return nil, err
	}
	defer n.end()
	if n.identity.Features&datasheet.FeatureRing == 0 {
		return nil, n.refuse(op, fmt.Errorf("%w: rings", descriptors.ErrNotSupported), "a newer device version is needed")
	}
	for _, depth := range []int{a.SendDepth, a.RecvDepth} {
		if depth < 1 || depth > n.identity.MaxQueueDepth {
			return nil, n.refuse(op, fmt.Errorf("%w: ring of %d entries", descriptors.ErrInvalidParameter, depth),
				fmt.Sprintf("this device has rings of 1 to %d", n.identity.MaxQueueDepth))
		}
	}
	if limit := n.MaxPayload(); a.MaxPayload > limit {
		return nil, n.refuse(op, fmt.Errorf("%w: payloads of %d bytes", descriptors.ErrInvalidMTU, a.MaxPayload),
			fmt.Sprintf("this device takes up to %d", limit))
	}
	r, err := n.createRing(ctx, a)
	if err != nil {
		return nil, n.error(op, err)
	}
	return r, nil
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
	r.send.init(r, "send")
	r.recv.init(r, "receive")
	reply, err := n.execute(ctx, newCommand(datasheet.OpCreateEndpoint, datasheet.CreateEndpointBody{
		Ptag: a.Ptag, MaxTransfer: datasheet.RingMessage + a.MaxPayload, SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ,
		SendVector: vectorNumber(r.vec), RecvVector: vectorNumber(r.vec),
		Kind: datasheet.KindRing, Reliability: a.Reliability, SendLog2: sendLog2, RecvLog2: recvLog2,
	}))
	if err != nil {
		return nil, err
	}
	created := datasheet.Reply[datasheet.EndpointCreated](reply)
	if err := n.checkPieces(created, a); err != nil {
		return nil, n.fail(err)
	}
	page := datasheet.EndpointPage(created.Endpoint) + datasheet.DoorbellRing
	r.send.place(uint64(created.Send), a.SendDepth, n.doorbellAt(page+datasheet.DoorbellSend), n.doorbellAt(page+datasheet.DoorbellSendArm))
	r.recv.place(uint64(created.Recv), a.RecvDepth, n.doorbellAt(page+datasheet.DoorbellRecv), n.doorbellAt(page+datasheet.DoorbellRecvArm))
	r.table.init(n, uint64(created.Table))
	if err := n.adopt(&r.endpoint, created.Endpoint, false); err != nil {
		return nil, err
	}
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
	if c.Endpoint == 0 || c.Endpoint >= uint32(len(n.endpoints)) {
		return fmt.Errorf("%w: it gave out endpoint %d of %d", ErrProtocol, c.Endpoint, len(n.endpoints))
	}
	return nil
}

// Attributes returns what the ring was created with, depths rounded up.
func (r *Ring) Attributes() RingAttributes { return r.attributes }

// Mapped reports whether the rings are mapped, so that SendMessage and RecvMessage have
// something to return.
func (r *Ring) Mapped() bool { return r.send.slots != nil && r.recv.slots != nil }

// SendMessage returns the RingMessage bytes of entry i of the send ring in device
// memory, nil if it is not mapped. They may be write-combining: reading them is slow. They
// die with the ring and with the NIC.
func (r *Ring) SendMessage(i uint32) []byte { return r.send.message(i) }

// RecvMessage is SendMessage for the receive ring. The device may write there at any time.
func (r *Ring) RecvMessage(i uint32) []byte { return r.recv.message(i) }

// PutSend fills entry i of the send ring, which is not posted: message, at most
// RingMessage bytes, is copied there; nil leaves what SendMessage has been filled with.
// It fails with ErrInvalidParameter for an entry that is posted or too far ahead, or for a
// message or payload that is too long.
func (r *Ring) PutSend(i uint32, message []byte, s RingSend) error { return r.send.put(i, message, s) }

// PutRecv fills entry i of the receive ring, which is not posted: the frame, if its handle
// is not 0, is where the payload of a message goes that no entry of the payload table takes.
func (r *Ring) PutRecv(i uint32, frame datasheet.DataSegment) error {
	return r.recv.put(i, nil, RingSend{Payload: frame})
}

// PostSend hands the next count entries to the device, which were put; one doorbell does
// for all.
func (r *Ring) PostSend(count int) error { return r.send.post(count) }

// PostRecv is PostSend for the receive ring. Receives may be posted before the ring is
// connected.
func (r *Ring) PostRecv(count int) error { return r.recv.post(count) }

// SendDone takes back the entry of the send ring that was posted first, if it has completed:
// with an error that wraps a *StatusError if it completed in error, and with ErrProtocol if
// the device wrote an impossible completion. It fails with ErrNotDone or ErrQueueEmpty
// (both bare), ErrClosed, or what is wrong with the device.
func (r *Ring) SendDone() (RingCompletion, error) { return r.send.poll() }

// RecvDone is SendDone for the receive ring.
func (r *Ring) RecvDone() (RingCompletion, error) { return r.recv.poll() }

// LoadRecv copies the message of entry i of the receive ring, which has been taken and not
// been put again, into p: at most RingMessage bytes.
func (r *Ring) LoadRecv(i uint32, p []byte) error { return r.recv.load(i, p) }

// Queued returns how many entries are posted and not taken back; zero once the ring is
// destroyed.
func (r *Ring) Queued() (send, recv int) { return r.send.queued(), r.recv.queued() }

func (r *Ring) end() *endpoint {
	if r == nil {
		return nil
	}
	return &r.endpoint
}

func (r *Ring) refuse(yes bool) {
	r.send.refuse(yes)
	r.recv.refuse(yes)
}

func (r *Ring) close() {
	r.send.close()
	r.recv.close()
	r.table.close()
}

// forget and free: no CQ knows of a ring, and its memory is the device's.
func (r *Ring) forget()     {}
func (r *Ring) free() error { return nil }

func (r *Ring) holds(handle uint32) bool {
	return slices.ContainsFunc([]*ringQueue{&r.send, &r.recv}, func(q *ringQueue) bool { return q.holds(handle) }) || r.table.holds(handle)
}

// lose: a status in device memory can always be written.
func (r *Ring) lose(uint64) {}
