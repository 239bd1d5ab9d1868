package driver

import (
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// take is Done that writes the completion to done, which with an error means nothing. Without run
// it does not step a device that needs it. To copy a completion from call to call takes longer than
// to find it.
func (c *CQ) take(done *Completion, run bool) error {
	var e entry
	c.mu.Lock()
	if !c.oldest(&e) && !(run && !c.closed && c.step() && c.oldest(&e)) {
		err := c.closedAs
		if !c.closed {
			err = c.nothing()
		}
		c.mu.Unlock()
		return err
	}
	c.mu.Unlock()
	if e.by == nil {
		done.VI, done.Queue, done.Index, done.User = e.q.vi, e.q.which, e.index, e.user
		done.Descriptor, done.Err = nil, nil
		return nil
	}
	if e.takeShared(done) {
		return nil
	}
	return c.take(done, run)
}

// step runs the device, if it needs that, up to an entry of the CQ, and reports whether that did anything. mu is held: a
// device calls none that need it.
func (c *CQ) step() bool {
	if c.path != nil && !c.n.regions.has(unusualEager|unusualPump) {
		return c.path.Poll(1)
	}
	done := false
	defer func() {
		if !done { // memory that the device needs is gone, which the caller is to learn
			c.mu.Unlock()
		}
	}()
	did := c.n.progress()
	done = true
	return did
}

// oldest takes entries up to the first whose descriptor is still in its queue. It returns false if
// there is none, also on a CQ that has failed. mu is held.
func (c *CQ) oldest(e *entry) (found bool) {
	for len(c.sorted) > 0 {
		*e, c.sorted = c.sorted[0], c.sorted[1:]
		e.report()
		if !e.tookBack() {
			return true
		}
	}
	// All that was found is reported now. Others read that, and the device where the
	// ring goes on: they are told once, not with each entry.
	var q *workQueue
	for !found && c.next(e) {
		if q != nil && q != e.q {
			datasheet.StoreIndex(&q.reported, q.found)
		}
		q = e.q
		if found = !e.tookBack(); !found {
			c.passOver(q)
		}
	}
	if q != nil {
		datasheet.StoreIndex(&q.reported, q.found)
		datasheet.StoreIndex(c.index, c.taken)
	}
	return found
}

// passOver takes further entries of q, of which an entry was found last. It ends at one whose
// descriptor has not been taken back yet, and at the end of the ring. mu is held.
func (c *CQ) passOver(q *workQueue) {
	first := c.taken & c.mask
	left := int32(datasheet.LoadIndex(&q.taken) - q.found)
	if q.shared || left <= 0 {
		return
	}
	number, flags, found := q.vi.number, datasheet.PhaseOf(c.taken, c.log2), q.found
	if !q.sends {
		flags |= datasheet.CompletionReceive
	}
	entries := c.ring[first:min(first+uint32(left), c.mask+1)]
	for i := range entries {
		// What is read may be old, and is then of no descriptor that is found here. The method
		// next looks at such an entry again, behind a barrier.
		e := &entries[i]
		if e.LoadFlags() != flags || e.Endpoint != number || e.Index != found ||
			e.Status&uint32(datasheet.StatusReserved|datasheet.StatusDone) != uint32(datasheet.StatusDone) {
			break
		}
		found++
	}
	n := found - q.found
	c.taken, c.read, q.found = c.taken+n, c.read+uint64(n), found
}

// next takes the next entry from the ring into e, which the caller tells the device, checks
// it, and finds its queue. It returns false if there is none. An impossible one is the last: after it
// nothing in the ring can be relied on.
func (c *CQ) next(e *entry) bool {
	if c.closed {
		return false
	}
	shared := &c.ring[c.taken&c.mask]
	flags := shared.LoadFlags()
	if flags&datasheet.CompletionPhase != datasheet.PhaseOf(c.taken, c.log2) {
		return false
	}
	mmio.FromDevice()
	endpoint, index, status := shared.Endpoint, shared.Index, datasheet.Status(shared.Status)
	q := c.queueOf(endpoint, flags)
	if q == nil || !q.awaits(index) || flags&datasheet.CompletionFlagsReserved != 0 ||
		status&(datasheet.StatusReserved|datasheet.StatusDone) != datasheet.StatusDone {
		c.fail(c.n.error(c.side, fmt.Errorf("%w: entry %d of completion queue %d is endpoint %d, index %d, status %#x, flags %#x",
			ErrProtocol, c.taken, c.number, endpoint, index, uint32(status), flags)))
		return false
	}
	q.found++
	c.taken++
	c.read++
	// The slot is used again when this entry has been reported, and no sooner.
	n := &q.notes[index&q.mask]
	e.q, e.index, e.user, e.by, e.status = q, index, datasheet.LoadWord(&n.word), nil, status
	e.quiet = datasheet.LoadWord(&n.quiet) != 0 && status&datasheet.StatusErrorMask == 0
	if q.shared {
		e.by = c.n.VI(endpoint)
	}
	return true
}

// awaits reports whether the next entry of q may say that descriptor index has completed.
func (q *workQueue) awaits(index uint32) bool {
	if q.shared {
		return q.completes(index)
	}
	return index == q.found && index != datasheet.LoadIndex(&q.producer)
}

// queueOf returns the work queue that an entry is about, nil if it has none
// that completes here. Most entries are of the same as the one before.
func (c *CQ) queueOf(number, flags uint32) *workQueue {
	e, receive := c.n.endpoint(number), flags&datasheet.CompletionReceive != 0
	if s := &c.seen; e != nil && e == s.endpoint && receive == s.receive {
		return s.q
	}
	v := c.n.VI(number)
	if v == nil {
		return nil
	}
	q := &v.send
	if receive {
		q = &v.recv
		if from := v.source(); from != nil {
			q = from
		}
	}
	if q.cq != c {
		return nil
	}
	c.seen.endpoint, c.seen.receive, c.seen.q = &v.endpoint, receive, q
	return q
}

// report notes that the consumer is given e, or needs it no more.
func (e *entry) report() { datasheet.StoreIndex(&e.q.reported, e.q.reported+1) }

// tookBack reports whether the descriptor has been taken back, or the application does
// not want to know.
func (e *entry) tookBack() bool {
	return e.quiet || e.by == nil && int32(e.index-datasheet.LoadIndex(&e.q.taken)) < 0
}

// sort takes what is in the ring out of it, and drops the entries that are not needed
// any more: those of the queue gone, which may be nil, and those of descriptors that
// have been taken back, which make room in their queues. mu is held.
func (c *CQ) sort(gone *workQueue) {
	c.drain()
	c.sorted = slices.DeleteFunc(c.sorted, func(e entry) bool {
		if e.q == gone {
			return true
		}
		if !e.tookBack() {
			return false
		}
		e.report()
		return true
	})
}

// drain moves what is in the ring to sorted, and reports whether there was anything.
// mu is held.
func (c *CQ) drain() (any bool) {
	var e entry
	for c.next(&e) {
		datasheet.StoreIndex(c.index, c.taken)
		c.sorted, any = append(c.sorted, e), true
	}
	return any
}

// forget drops the entries of a queue that the device has destroyed. There is
// nothing to drop for a queue without a CQ.
func (c *CQ) forget(q *workQueue) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sort(q)
}

// entryLooks is the number of makeRoom's looks for an entry. A device writes it right after
// the status of the descriptor, which was seen.
const entryLooks = 1000

// makeRoom drops the entries of descriptors that have been taken back, so that the CQ
// has room for another completion of q. It reports whether that was so. The lock of
// q is held.
func (c *CQ) makeRoom(q *workQueue) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sort(nil)
	for range entryLooks {
		if q.next-q.reported < q.depth {
			return true
		}
		if c.drain() {
			c.sort(nil)
		}
	}
	return false
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
