package driver

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// checkShared names what is wrong with a new VI that shares a receive queue, or with a new
// queue to share.
func (n *NIC) checkShared(a *VIAttributes, sendCQ, recvCQ *CQ) error {
	from, queue := a.ReceiveQueue, a.Kind == datasheet.KindReceiveQueue
	if from == nil && !queue {
		return nil
	}
	bad := func(what string) error {
		return hinted(fmt.Errorf("%w: %s", descriptors.ErrInvalidParameter, what), "")
	}
	switch {
	case queue && (from != nil || sendCQ != nil || recvCQ == nil):
		return bad("a receive queue has one completion queue, and shares no other queue")
	case queue:
		return nil
	case a.Kind != datasheet.KindVI:
		return bad("only a VI can share a receive queue")
	case from.n != n || from.Attributes().Kind != datasheet.KindReceiveQueue:
		return bad("ReceiveQueue is not a receive queue of this NIC")
	case from.leaving.begun(n):
		return fmt.Errorf("receive queue: %w", descriptors.ErrClosed)
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
	case a.Kind == datasheet.KindReceiveQueue:
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
		return &from.recv
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
	*done = Completion{VI: e.by, Index: e.index, Receive: true, User: e.user, Descriptor: d}
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
