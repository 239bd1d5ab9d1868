package driver

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// ReceiveQueue is a receive queue that several VIs share: whichever gets a message takes
// the next receive. VIA does not have it. Its receives complete to its CQ, which gives out
// VI and descriptor (Completion). They complete in the order of their messages on each VI,
// and in any order between VIs.
type ReceiveQueue struct {
	v *VI // the NIC has it as an endpoint that is never connected
}

// ReceiveQueueAttributes are given when a receive queue is made.
type ReceiveQueueAttributes struct {
	// Ptag that the descriptors, their memory and the VIs must have; nil is the NIC's
	// default.
	Ptag *Ptag
	// Depth is the number of descriptors that the queue holds, 1 to the NIC's limit; zero is
	// DefaultDepth.
	Depth int
}

// CreateReceiveQueue makes a receive queue for VIs that name it in their attributes. Its
// receives complete to cq, for life. Errors: ErrInvalidParameter without a cq, ErrResource
// if the NIC has no more VIs, of which this counts as one, or the CQ could not hold the
// completions, and ErrInvalidPtag.
func (n *NIC) CreateReceiveQueue(ctx context.Context, a ReceiveQueueAttributes, cq *CQ) (*ReceiveQueue, error) {
	return get(ctx, n.do, "create receive queue", func() (*ReceiveQueue, error) {
		v, err := n.createChecked(ctx, VIAttributes{shared: true, Reliability: datasheet.Unreliable, MaxTransfer: n.identity.MaxTransfer,
			Ptag: a.Ptag, SendDepth: 1, RecvDepth: a.Depth}, nil, cq)
		if err != nil {
			return nil, err
		}
		return &ReceiveQueue{v}, nil
	})
}

// Ptag that the queue's descriptors have.
func (q *ReceiveQueue) Ptag() *Ptag { return q.v.Attributes().Ptag }

// Depth returns the number of descriptors that the queue holds.
func (q *ReceiveQueue) Depth() int { return q.v.Attributes().RecvDepth }

// Queued returns the number of descriptors that are posted and were not given out by the CQ.
func (q *ReceiveQueue) Queued() int { return q.v.recv.queued() }

// NewDescriptors is VI.NewDescriptors for the queue: they live as long as it does.
func (q *ReceiveQueue) NewDescriptors(ctx context.Context, n, segments int) ([]*descriptors.Descriptor, error) {
	return q.v.NewDescriptors(ctx, n, segments)
}

// PostRecv hands a descriptor to the queue: see VI.PostSend. The NIC owns it until the CQ
// gives it out.
func (q *ReceiveQueue) PostRecv(d *descriptors.Descriptor) error { return q.v.PostRecv(d) }

// PostRecvBatch is PostRecv for several, with one doorbell: see VI.PostRecvBatch.
func (q *ReceiveQueue) PostRecvBatch(ds []*descriptors.Descriptor) (int, error) {
	return q.v.PostRecvBatch(ds)
}

// Close ends the queue, and frees the descriptors from NewDescriptors. What is posted is
// the program's again. It fails with ErrResource while VIs share the queue.
func (q *ReceiveQueue) Close(ctx context.Context) error {
	return q.v.closeAll(ctx, "close receive queue", func() error {
		if q.v.leaving.uses > 0 {
			return refusal(descriptors.ErrResource, "close the VIs that share it first", "")
		}
		return nil
	}, nil)
}

// use counts one more VI that shares q, which may be nil, and leave undoes it.
func (q *ReceiveQueue) use(n *NIC) error {
	if q == nil {
		return nil
	}
	if err := q.v.leaving.use(n); err != nil {
		return fmt.Errorf("receive queue: %w", err)
	}
	return nil
}

func (q *ReceiveQueue) leave() {
	if q != nil {
		q.v.leaving.leave(q.v.n)
	}
}

// checkShared names what is wrong with a new VI that shares a receive queue, or with a new
// queue to share.
func (n *NIC) checkShared(a *VIAttributes, sendCQ, recvCQ *CQ) error {
	from := a.ReceiveQueue
	if from == nil && !a.shared {
		return nil
	}
	bad := func(what string) error {
		return hinted(fmt.Errorf("%w: %s", descriptors.ErrInvalidParameter, what), "")
	}
	switch {
	case a.shared && recvCQ == nil:
		return bad("a receive queue has one completion queue")
	case a.shared:
		return nil
	case a.Frames != NoFrames:
		return bad("only a VI can share a receive queue")
	case from.v.n != n:
		return bad("ReceiveQueue is not a receive queue of this NIC")
	case recvCQ != nil:
		return bad("receives of a VI that shares a queue complete where the queue's do")
	}
	a.RecvDepth = 1
	return nil
}

// initShared makes the receive queue of v one that VIs share, or, if it shares another's,
// no queue at all.
func (v *VI) initShared(a *VIAttributes) {
	q := &v.recv
	switch {
	case a.shared:
		q.shared, q.free = true, make([]uint32, a.RecvDepth)
		for i := range q.free {
			q.free[i] = uint32(i)
		}
	case a.ReceiveQueue != nil:
		q.closed = true
		q.closedAs = v.n.refuse("use receive queue", descriptors.ErrInvalidState, "the VI shares a receive queue: use that one and its completion queue")
	}
}

// source is the receive queue that v shares, nil if it has one of its own.
func (v *VI) source() *workQueue {
	if from := v.attributes.Load().ReceiveQueue; from != nil {
		return &from.v.recv
	}
	return nil
}

// recvIOVA is where CREATE_ENDPOINT is told that the receives are, whose ring is at iova.
func (v *VI) recvIOVA(iova uint64) uint64 {
	if q := v.source(); q != nil {
		return uint64(q.vi.number)
	}
	return iova
}

// name gives t a free place, of which there is one. mu is held.
func (q *workQueue) name(t *datasheet.Token) uint32 {
	last := len(q.free) - 1
	t.Flags = q.free[last]
	q.free = q.free[:last]
	return t.Flags
}

// completes reports whether the device may say that the descriptor at place index has completed,
// which it does once. The lock of the CQ is held: a queue that is shared never needs that one
// while it holds its own.
func (q *workQueue) completes(index uint32) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return true // what it completes is passed over
	}
	if index >= uint32(len(q.posted)) {
		return false
	}
	p := &q.posted[index]
	sound := p.d != nil && !p.found
	p.found = true
	return sound
}

// takeShared takes the descriptor of e back. It returns false if the queue has been
// destroyed meanwhile.
func (e *entry) takeShared(done *Completion) bool {
	q := e.q
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	p := &q.posted[e.index]
	d, tooLong := p.d, e.by.recv.tooLong(p)
	d.Post().Posted = false
	*p = posting{}
	q.free = append(q.free, e.index)
	datasheet.StoreIndex(&q.taken, q.taken+1)
	bad := e.status&(datasheet.StatusErrorMask|datasheet.StatusReserved) != 0 || tooLong
	if bad {
		q.failed++
	}
	q.mu.Unlock()
	*done = Completion{VI: e.by, Queue: RecvQueue, Index: e.index, User: e.user, Descriptor: d}
	if bad {
		done.Err = e.by.recv.completedBadly(d, &badCompletion{e.status, tooLong})
	}
	return true
}

// releaseShared gives what is posted to a queue that is shared back to the program. mu is
// held.
func (q *workQueue) releaseShared() {
	if !q.shared || q.closed {
		return
	}
	for i := range q.posted {
		if d := q.posted[i].d; d != nil {
			d.Post().Posted = false
		}
	}
	q.taken = q.next
}
