package driver

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/vfio/mmio"
)

// done takes the oldest descriptor if it has completed.
func (q *workQueue) done() (*descriptors.Descriptor, error) {
	d, m, err := q.take()
	if m != 0 {
		return nil, q.vi.n.notDone(q.side, m)
	}
	return d, err
}

// miss says that nothing has completed: comparing errors costs as much as looking.
type miss uint8

const (
	missed  miss = iota + 1
	overdue      // so often that the device should be looked after
)

// passQuiet takes back what has completed without error of what the application wants no
// completions of, up to the first of another kind. It reports whether there was any. mu
// is held.
func (q *workQueue) passQuiet() (any bool) {
	for q.taken != q.next {
		p := &q.posted[q.taken&q.mask]
		if !p.quiet {
			break
		}
		if s := p.d.Status(); !s.Done() || s&(descriptors.StatusErrorMask|descriptors.StatusReserved) != 0 {
			break
		}
		mmio.FromDevice()
		if q.tooLong(p) {
			break
		}
		release(p.d)
		*p = posting{}
		descriptors.StoreIndex(&q.taken, q.taken+1)
		any = true
	}
	return any
}

// completion is what the queue says of a descriptor that it gives back.
type completion struct {
	d              *descriptors.Descriptor
	status         descriptors.Status
	tooLong, quiet bool
}

// take is done, but for how it says that nothing has completed.
func (q *workQueue) take() (*descriptors.Descriptor, miss, error) {
	for {
		c, m, err := q.first()
		switch {
		case m != 0 || err != nil:
			return nil, m, err
		case c.status&(descriptors.StatusErrorMask|descriptors.StatusReserved) != 0 || c.tooLong:
			return c.d, 0, q.completedBadly(c.d, c.status, c.tooLong)
		case !c.quiet:
			return c.d, 0, nil
		} // else it has completed since passQuiet looked
	}
}

// first takes the first descriptor that the application wants to hear of, if it has
// completed. The memory of a descriptor may be the program's own, and gone: the lock is
// given back also if reading it panics.
func (q *workQueue) first() (c completion, m miss, _ error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return c, 0, q.closedAs
	}
	if q.taken != q.next && q.posted[q.taken&q.mask].quiet {
		q.passQuiet()
	}
	if q.taken == q.next {
		return c, 0, ErrQueueEmpty
	}
	p := &q.posted[q.taken&q.mask]
	status := p.d.Status()
	if !status.Done() {
		if !p.lost {
			m = missed
			if q.misses++; q.misses%missesPerCheck == 0 {
				m = overdue
			}
			return c, m, nil
		}
		status = descriptors.StatusDone | descriptors.StatusProtectionError
	}
	mmio.FromDevice()
	c = completion{p.d, status, q.tooLong(p), p.quiet}
	release(c.d)
	*p = posting{}
	descriptors.StoreIndex(&q.taken, q.taken+1)
	return c, 0, nil
}

// poll is done, but where something must be stepped it does that and looks
// again.
func (q *workQueue) poll() (*descriptors.Descriptor, error) {
	d, m, err := q.take()
	if m != 0 && q.vi.n.progress() {
		d, m, err = q.take()
	}
	if m != 0 {
		return nil, q.vi.n.notDone(q.side, m)
	}
	return d, err
}

// notDone is the answer when nothing of a queue has completed, which it never will on a
// device that has failed: now and then it asks.
func (n *NIC) notDone(side string, m miss) error {
	err := n.failed()
	if err == nil && m == overdue {
		err = n.polled()
	}
	if err != nil {
		return n.error(side, err)
	}
	return ErrNotDone
}

// completedBadly says what is wrong with a completed descriptor.
func (q *workQueue) completedBadly(d *descriptors.Descriptor, status descriptors.Status, tooLong bool) error {
	var err error
	switch {
	case status&descriptors.StatusReserved != 0:
		err = fmt.Errorf("%w: completion with reserved status bits: %v", ErrProtocol, status)
	case tooLong:
		err = fmt.Errorf("%w: completion of %d bytes, more than was posted", ErrProtocol, d.Length())
	default:
		err = &StatusError{Status: status, Ended: q.vi.ended(q.vi.Attributes().Reliability, status)}
	}
	return q.vi.n.error(q.side, err)
}
