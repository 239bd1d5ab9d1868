package driver

import (
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/vfio/mmio"
)

// take returns the oldest completion whose descriptor is still in its queue, which
// then knows it to be reported.
func (c *CQ) take() (descriptors.Completion, error) {
	c.mu.Lock()
	var e descriptors.Completion
	var q *workQueue
	var err error
	for {
		if len(c.sorted) > 0 {
			e, c.sorted = c.sorted[0], c.sorted[1:]
			q = c.queueOf(e)
		} else if e, q, err = c.next(); err != nil {
			break
		}
		if q == nil {
			continue // it has been destroyed
		}
		descriptors.StoreIndex(&q.reported, q.reported+1)
		if !q.tookBack(e.Index) {
			c.mu.Unlock()
			return e, nil
		}
	}
	c.misses++
	look := c.misses%missesPerCheck == 0
	c.mu.Unlock()
	if err != ErrNotDone {
		return e, err
	}
	if err := c.n.failed(); err != nil {
		return e, c.n.error("poll CQ", err)
	}
	if look {
		if err := c.n.polled(); err != nil {
			return e, c.n.error("poll CQ", err)
		}
	}
	return e, ErrNotDone
}

// next takes the next entry from the ring, checks it, and finds its queue. An
// impossible one is the last: after it nothing in the ring can be relied on.
func (c *CQ) next() (descriptors.Completion, *workQueue, error) {
	if c.failed != nil {
		return descriptors.Completion{}, nil, c.failed
	}
	shared := &c.ring[c.consumer&c.mask]
	flags := shared.LoadFlags()
	if flags&descriptors.CompletionPhase != descriptors.PhaseOf(c.consumer, c.log2) {
		return descriptors.Completion{}, nil, ErrNotDone
	}
	mmio.FromDevice()
	e := descriptors.Completion{Endpoint: shared.Endpoint, Index: shared.Index, Status: shared.Status, Flags: flags}
	q := c.queueOf(e)
	if q == nil || e.Index != q.found || q.found == descriptors.LoadIndex(&q.producer) ||
		flags&descriptors.CompletionFlagsReserved != 0 ||
		e.Status&uint32(descriptors.StatusReserved) != 0 || e.Status&uint32(descriptors.StatusDone) == 0 {
		c.failed = c.n.error("poll CQ", fmt.Errorf("%w: entry %d of completion queue %d is endpoint %d, index %d, status %#x, flags %#x",
			ErrProtocol, c.consumer, c.number, e.Endpoint, e.Index, e.Status, flags))
		return descriptors.Completion{}, nil, c.failed
	}
	q.found++
	c.consumer++
	descriptors.StoreIndex(c.index, c.consumer)
	return e, q, nil
}

// queueOf returns the work queue that an entry is about, nil if it has none
// that completes here.
func (c *CQ) queueOf(e descriptors.Completion) *workQueue {
	v := c.n.VI(e.Endpoint)
	if v == nil {
		return nil
	}
	q := &v.send
	if e.Flags&descriptors.CompletionReceive != 0 {
		q = &v.recv
	}
	if q.cq != c {
		return nil
	}
	return q
}

// tookBack reports whether descriptor number index has been taken back.
func (q *workQueue) tookBack(index uint32) bool {
	return int32(index-descriptors.LoadIndex(&q.taken)) < 0
}

// sort takes what is in the ring out of it, and drops the entries that nobody needs
// any more: those of the queue gone, which may be nil, and those of descriptors that
// have been taken back, which make room in their queues. mu is held.
func (c *CQ) sort(gone *workQueue) {
	c.drain()
	c.sorted = slices.DeleteFunc(c.sorted, func(e descriptors.Completion) bool {
		q := c.queueOf(e)
		if q == nil || q == gone {
			return true
		}
		if !q.tookBack(e.Index) {
			return false
		}
		descriptors.StoreIndex(&q.reported, q.reported+1)
		return true
	})
}

// drain moves what is in the ring to sorted, and reports whether there was anything.
// mu is held.
func (c *CQ) drain() (any bool) {
	for {
		e, _, err := c.next()
		if err != nil {
			return any
		}
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
		if q.producer-q.reported < q.depth {
			return true
		}
		if c.drain() {
			c.sort(nil)
		}
	}
	return false
}
