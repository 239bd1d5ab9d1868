package driver

import (
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// entry is an entry of a CQ that has been checked: descriptor number index of a queue
// has completed.
type entry struct {
	q        *workQueue
	index    uint32
	endpoint uint32
	// quiet says that the application wants no completion of it.
	quiet  bool
	user   uint64
	status descriptors.Status
	by     *VI // of a shared receive queue: the VI that has taken the descriptor
}

// take takes the oldest completion whose descriptor is still in its queue, which
// then knows it to be reported. Results are written where the caller wants them: to copy
// them from call to call takes longer than to find them.
func (c *CQ) take(done *Completion) error {
	var e entry
	c.mu.Lock()
	err := c.oldest(&e)
	if err == nil {
		c.mu.Unlock()
		if e.by == nil {
			done.VI, done.Index, done.Receive, done.User = e.q.vi, e.index, !e.q.sends, e.user
			done.Descriptor, done.Err = nil, nil
			return nil
		}
		if e.takeShared(done) {
			return nil
		}
		return c.take(done)
	}
	c.misses++
	look := c.misses%missesPerCheck == 0
	c.mu.Unlock()
	if err != ErrNotDone {
		return err
	}
	if err := c.n.failed(); err != nil {
		return c.n.error("poll CQ", err)
	}
	if look {
		if err := c.n.polled(); err != nil {
			return c.n.error("poll CQ", err)
		}
	}
	return ErrNotDone
}

// oldest takes entries up to the first whose descriptor is still in its queue. mu is
// held.
func (c *CQ) oldest(e *entry) error {
	for len(c.sorted) > 0 {
		*e, c.sorted = c.sorted[0], c.sorted[1:]
		e.report()
		if !e.tookBack() {
			return nil
		}
	}
	// All that was found is reported now. Others read that, and the device where the
	// ring goes on: they are told once, not with each entry.
	var last *workQueue
	for {
		q, err := c.next(e)
		if last != nil && (q != last || err != nil) {
			descriptors.StoreIndex(&last.reported, last.found)
		}
		if err != nil {
			if last != nil {
				descriptors.StoreIndex(c.index, c.consumer)
			}
			return err
		}
		last = q
		if !q.shared && int32(e.index-descriptors.LoadIndex(&q.taken)) < 0 {
			continue
		}
		if e.note(c, q); !e.quiet {
			descriptors.StoreIndex(&q.reported, q.found)
			descriptors.StoreIndex(c.index, c.consumer)
			return nil
		}
	}
}

// lookahead is how many entries look looks at, at most.
const lookahead = 32

// look finds out which further entries the device has written, with one barrier for
// all, and reports whether there are any.
func (c *CQ) look() bool {
	phase := descriptors.PhaseOf(c.consumer, c.log2)
	ring := c.ring[c.consumer&c.mask:]
	for i := range ring[:min(len(ring), lookahead)] {
		if ring[i].LoadFlags()&descriptors.CompletionPhase != phase {
			break
		}
		c.written++
	}
	mmio.FromDevice()
	return c.written != c.consumer
}

// next takes the next entry from the ring, which the caller tells the device, and checks
// it. What it says goes to e, but for what note adds.
func (c *CQ) next(e *entry) (*workQueue, error) {
	if c.consumer == c.written && (c.failed != nil || !c.look()) {
		if c.failed != nil {
			return nil, c.failed
		}
		return nil, ErrNotDone
	}
	on := &c.ring[c.consumer&c.mask]
	endpoint, index, status, flags := on.Endpoint, on.Index, on.Status, on.LoadFlags()&^descriptors.CompletionPhase
	l := &c.last
	q := l.q
	if q == nil || c.n.endpoint(endpoint) != l.of || flags != l.flags || index != q.found || index == descriptors.LoadIndex(&q.producer) ||
		status&uint32(descriptors.StatusReserved|descriptors.StatusDone) != uint32(descriptors.StatusDone) {
		if q = c.queueOf(endpoint, index, status, flags); q == nil {
			return nil, c.failed
		}
	}
	q.found++
	c.consumer++
	c.read++
	e.index, e.endpoint, e.status = index, endpoint, descriptors.Status(status)
	return q, nil
}

// note makes e one of queue q, with what the application has noted of the descriptor: the slot of
// that is used again when the entry has been reported, and no sooner.
func (e *entry) note(c *CQ, q *workQueue) {
	n := &q.notes[e.index&q.mask]
	e.q, e.user, e.by = q, descriptors.LoadWord(&n.word), nil
	e.quiet = descriptors.LoadWord(&n.unsignaled) != 0 && e.status&descriptors.StatusErrorMask == 0
	if q.shared {
		e.by = c.n.VI(e.endpoint)
	}
}

// lastFound is the queue, none that VIs share, of which the CQ has found an entry last: most are
// of the same.
type lastFound struct {
	of    *endpoint
	flags uint32 // of its entries, but for the phase
	q     *workQueue
}

// queueOf checks an entry, and returns the work queue that it is about. An impossible one, for
// which it returns nil, is the last: after it nothing in the ring can be relied on.
func (c *CQ) queueOf(endpoint, index, status, flags uint32) *workQueue {
	var q *workQueue
	if v := c.n.VI(endpoint); v != nil {
		q = &v.send
		if flags&descriptors.CompletionReceive != 0 {
			q = &v.recv
			if from := v.source(); from != nil {
				q = from
			}
		}
	}
	if q == nil || q.cq != c || !q.shared && (index != q.found || index == descriptors.LoadIndex(&q.producer)) || q.shared && !q.find(index) ||
		flags&descriptors.CompletionFlagsReserved != 0 ||
		status&uint32(descriptors.StatusReserved) != 0 || status&uint32(descriptors.StatusDone) == 0 {
		c.failed = c.n.error("poll CQ", fmt.Errorf("%w: entry %d of completion queue %d is endpoint %d, index %d, status %#x, flags %#x",
			ErrProtocol, c.consumer, c.number, endpoint, index, status, flags))
		c.written = c.consumer
		return nil
	}
	if !q.shared {
		c.last = lastFound{c.n.endpoint(endpoint), flags, q}
	}
	return q
}

// report notes that the consumer is given e, or needs it no more.
func (e *entry) report() { descriptors.StoreIndex(&e.q.reported, e.q.reported+1) }

// tookBack reports whether the descriptor has been taken back, or the application does
// not want to know.
func (e *entry) tookBack() bool {
	return e.quiet || e.by == nil && int32(e.index-descriptors.LoadIndex(&e.q.taken)) < 0
}

// sort takes what is in the ring out of it, and drops the entries that nobody needs
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
	for {
		var e entry
		q, err := c.next(&e)
		if err != nil {
			return any
		}
		descriptors.StoreIndex(c.index, c.consumer)
		e.note(c, q)
		c.sorted, any = append(c.sorted, e), true
	}
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
	c.last = lastFound{}
}

// entryLooks is how often makeRoom looks for an entry. A device writes it right after
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
