package driver

import (
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/vfio/mmio"
)

// take returns the oldest completion, which its queue then knows to be reported.
func (c *CQ) take() (descriptors.Completion, error) {
	c.mu.Lock()
	if len(c.sorted) > 0 {
		e := c.sorted[0]
		c.sorted = c.sorted[1:]
		c.report(&e)
		c.mu.Unlock()
		return e, nil
	}
	e, err := c.next()
	if err == nil {
		c.report(&e)
		c.mu.Unlock()
		return e, nil
	}
	c.misses++
	look := c.misses%missesPerCheck == 0
	c.mu.Unlock()
	if err != ErrNotDone {
		return e, err
	}
	if err := c.n.failed(); err != nil {
		return e, c.n.error("CQ done", err)
	}
	if look {
		if err := c.n.polled(); err != nil {
			return e, c.n.error("CQ done", err)
		}
	}
	return e, ErrNotDone
}

// next takes the next entry from the ring and checks it. An impossible one is
// the last: after it nothing in the ring can be relied on.
func (c *CQ) next() (descriptors.Completion, error) {
	if c.failed != nil {
		return descriptors.Completion{}, c.failed
	}
	shared := &c.ring[c.consumer&c.mask]
	flags := shared.LoadFlags()
	if flags&descriptors.CompletionPhase != descriptors.PhaseOf(c.consumer, c.log2) {
		return descriptors.Completion{}, ErrNotDone
	}
	mmio.FromDevice()
	e := descriptors.Completion{Endpoint: shared.Endpoint, Index: shared.Index, Status: shared.Status, Flags: flags}
	q := c.queueOf(&e)
	if q == nil || e.Index != q.found || q.found == descriptors.LoadIndex(&q.producer) ||
		flags&descriptors.CompletionFlagsReserved != 0 ||
		e.Status&uint32(descriptors.StatusReserved) != 0 || e.Status&uint32(descriptors.StatusDone) == 0 {
		c.failed = c.n.error("CQ done", fmt.Errorf("%w: entry %d of completion queue %d is endpoint %d, index %d, status %#x, flags %#x",
			ErrProtocol, c.consumer, c.number, e.Endpoint, e.Index, e.Status, flags))
		return descriptors.Completion{}, c.failed
	}
	q.found++
	c.consumer++
	descriptors.StoreIndex(c.index, c.consumer)
	return e, nil
}

// queueOf returns the work queue that an entry is about, nil if it has none
// that completes here.
func (c *CQ) queueOf(e *descriptors.Completion) *workQueue {
	if e.Endpoint >= uint32(len(c.n.vis)) {
		return nil
	}
	v := c.n.vis[e.Endpoint].Load()
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

// report counts an entry as given to the consumer: its queue has room for
// another descriptor.
func (c *CQ) report(e *descriptors.Completion) {
	if q := c.queueOf(e); q != nil {
		descriptors.StoreIndex(&q.reported, q.reported+1)
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
	for {
		e, err := c.next()
		if err != nil {
			break
		}
		c.sorted = append(c.sorted, e)
	}
	c.sorted = slices.DeleteFunc(c.sorted, func(e descriptors.Completion) bool { return c.queueOf(&e) == q })
}
