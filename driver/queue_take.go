package driver

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// done takes the oldest descriptor if it has completed. With run, where something must be stepped it
// does that and looks again.
func (q *workQueue) done(run bool) (*descriptors.Descriptor, error) {
	q.mu.Lock()
	if !q.quick || q.taken == q.next || q.n.regions.has(unusual) {
		return q.doneAny(run)
	}
	i := int(q.taken & q.mask)
	if i >= len(q.posted) {
		return q.doneAny(run)
	}
	p := &q.posted[i]
	d := p.d
	status := d.Status()
	if status == 0 {
		if !run {
			return q.doneAny(false)
		}
		if !q.path.Poll(!q.sends, 1) && !p.lost {
			if q.misses++; q.misses%missesPerCheck != 0 {
				q.mu.Unlock()
				return nil, descriptors.ErrNotDone
			}
		}
		status, run = d.Status(), false
	}
	if status&(datasheet.StatusDone|datasheet.StatusErrorMask|datasheet.StatusReserved) != datasheet.StatusDone {
		return q.doneAny(run)
	}
	if p.quiet || d.Length() > p.length {
		return q.doneAny(run)
	}
	d.Post().Posted = false
	p.d = nil
	datasheet.StoreIndex(&q.taken, q.taken+1)
	q.mu.Unlock()
	return d, nil
}

// doneAny is done in any case. It unlocks mu.
//
//go:noinline
func (q *workQueue) doneAny(run bool) (*descriptors.Descriptor, error) {
	defer q.mu.Unlock()
	return q.DoneHeld(run)
}

// passQuiet takes back what has completed without error of what the application wants no
// completions of, up to the first of another kind. It reports whether there was any. mu
// is held.
func (q *workQueue) passQuiet() (any bool) {
	for q.taken != q.next {
		p := &q.posted[q.taken&q.mask]
		if !p.quiet {
			break
		}
		if s := p.d.Status(); !s.Done() || s&(datasheet.StatusErrorMask|datasheet.StatusReserved) != 0 {
			break
		}
		mmio.FromDevice()
		if q.tooLong(p) {
			break
		}
		p.d.Post().Posted = false
		*p = posting{}
		q.pass(1)
		any = true
	}
	return any
}

// badCompletion is take's answer for a descriptor with an error: what became of the VI is
// asked without the queue's lock, see completedBadly.
type badCompletion struct {
	status  datasheet.Status
	tooLong bool
}

func (*badCompletion) Error() string { return "completed in error" }

// take takes the oldest descriptor, or returns nil twice if it is still the device's. Of one with an error it
// returns a *badCompletion. mu is held. The memory of a descriptor may be the program's own, and gone: callers
// give the lock back also if reading it panics.
func (q *workQueue) take() (*descriptors.Descriptor, error) {
	for {
		switch {
		case q.closed:
			return nil, q.closedAs
		case q.taken == q.next:
			return nil, descriptors.ErrQueueEmpty
		}
		p := &q.posted[q.taken&q.mask]
		status := p.d.Status()
		if !status.Done() {
			if !p.lost {
				return nil, nil
			}
			status = datasheet.StatusDone | datasheet.StatusProtectionError
		}
		mmio.FromDevice()
		d, quiet, tooLong := p.d, p.quiet, q.tooLong(p)
		d.Post().Posted = false
		*p = posting{}
		q.pass(1)
		switch {
		case status&(datasheet.StatusErrorMask|datasheet.StatusReserved) != 0 || tooLong:
			q.failed++
			return d, &badCompletion{status, tooLong}
		case !quiet:
			return d, nil
		}
	}
}

// DoneHeld is VI.SendDone, or VI.RecvDone, with the lock held, but not while it finds out what an
// error means. Without run it does not step the device.
func (q *workQueue) DoneHeld(run bool) (*descriptors.Descriptor, error) {
	d, err := q.take()
	if d == nil && err == nil && run && q.progress(!q.sends) {
		d, err = q.take()
	}
	if q.vi.send.sampler != nil {
		q.vi.send.timeSendFrom(q)
	}
	switch {
	case d == nil && err == nil:
		return nil, q.nothing()
	case d == nil || err == nil:
		return d, err
	}
	q.mu.Unlock()
	err = q.completedBadly(d, err.(*badCompletion))
	q.mu.Lock()
	return d, err
}

// completedBadly says what is wrong with a completed descriptor.
func (q *workQueue) completedBadly(d *descriptors.Descriptor, bad *badCompletion) error {
	var err error
	switch {
	case bad.status&datasheet.StatusReserved != 0:
		err = fmt.Errorf("%w: completion with reserved status bits: %v", ErrProtocol, bad.status)
	case bad.tooLong:
		err = fmt.Errorf("%w: completion of %d bytes, more than was posted", ErrProtocol, d.Length())
	default:
		err = &StatusError{Status: bad.status, Ended: q.vi.ended(q.vi.Attributes().Reliability, bad.status)}
	}
	return q.n.error(q.side, err)
}

// pass notes that n more descriptors have been taken back, in order. mu is held.
func (q *workQueue) pass(n uint32) {
	datasheet.StoreIndex(&q.taken, q.taken+n)
	if q.sampler != nil {
		q.sampler.taken(q.taken)
	}
}

// pollBatch takes the oldest descriptors that have completed, as many as into has
// room for. One that completed in error comes alone.
func (q *workQueue) pollBatch(into []*descriptors.Descriptor) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.DoneBatchHeld(into)
}

// DoneBatchHeld is VI.SendDoneBatch, or VI.RecvDoneBatch, as DoneHeld is.
func (q *workQueue) DoneBatchHeld(into []*descriptors.Descriptor) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	n := q.takeSound(into)
	if n == 0 && !q.closed && q.taken != q.next {
		var did bool
		switch {
		case q.path != nil && !q.n.regions.has(unusualPump):
			did = q.path.Poll(!q.sends, len(into))
		case len(into) > 1:
			did = q.n.progress() // for all that has come
		default:
			did = q.progress(!q.sends)
		}
		if did {
			n = q.takeSound(into)
		}
	}
	if n > 0 {
		if q.vi.send.sampler != nil {
			q.vi.send.timeSendFrom(q)
		}
		return n, nil
	}
	d, err := q.DoneHeld(false)
	if d == nil {
		return 0, err
	}
	into[0] = d
	return 1, err
}

// takeSound takes what has completed well, up to what has not, of which DoneHeld says
// more. mu is held.
func (q *workQueue) takeSound(into []*descriptors.Descriptor) (n int) {
	if q.closed {
		return 0
	}
	q.passQuiet()
	// All statuses first: one barrier does for all, and the processor fetches what
	// the device has written side by side.
	posted, taken, mask := q.posted, q.taken, q.mask
	into = into[:max(min(len(into), int(int32(q.next-taken))), 0)]
	for i := range into {
		p := &posted[(taken+uint32(i))&mask]
		d := p.d
		if s := d.Status(); p.quiet || !s.Done() || s&(datasheet.StatusErrorMask|datasheet.StatusReserved) != 0 {
			into = into[:i]
			break
		}
		into[i] = d
	}
	mmio.FromDevice()
	for _, d := range into {
		p := &posted[(taken+uint32(n))&mask]
		if q.tooLong(p) {
			break
		}
		d.Post().Posted = false
		*p = posting{}
		n++
	}
	q.pass(uint32(n))
	return n
}

// tooLong reports whether a completion says more than its descriptor has room for. An RDMA
// write of the peer has gone elsewhere.
func (q *workQueue) tooLong(p *posting) bool {
	n := p.d.Length()
	return n > p.length && n > q.tabled && !q.vi.written(p.d)
}

// timeSendFrom looks whether the send that is timed, if any, has completed: programs take sends back long
// after, such as when they need a buffer. It is called with the lock of held, either of the VI's
// queues, and never waits for another.
func (q *workQueue) timeSendFrom(held *workQueue) {
	if q != held {
		if !q.sampler.running.Load() || !q.mu.TryLock() {
			return
		}
		defer q.mu.Unlock() // also if the memory of the descriptor is gone, as in take
	}
	q.timeSend()
}

// timeSend is timeSendFrom with mu held.
func (q *workQueue) timeSend() {
	s := q.sampler
	if !s.running.Load() || q.closed {
		return
	}
	if d := q.posted[(s.until-1)&q.mask].d; d != nil && d.Status().Done() {
		s.taken(s.until)
	}
}
