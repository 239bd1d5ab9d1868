package driver

import (
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/vfio/mmio"
)

// pollBatch takes the oldest descriptors that have completed, as many as into has
// room for. One that completed in error comes alone.
func (q *workQueue) pollBatch(into []*descriptors.Descriptor) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	if n := q.takeSound(into); n > 0 {
		return n, nil
	}
	d, err := q.poll()
	switch {
	case d == nil:
		return 0, err
	case err == nil: // what was stepped for one may have brought more
		into[0] = d
		return 1 + q.takeSound(into[1:]), nil
	}
	into[0] = d
	return 1, err
}

// takeSound takes what has completed well, up to what has not: poll says what that
// is.
func (q *workQueue) takeSound(into []*descriptors.Descriptor) (n int) {
	q.mu.Lock()
	taken := q.taken
	for n < len(into) && !q.closed && int32(q.producer-taken) > 0 {
		p := &q.posted[taken&q.mask]
		status := p.d.Status()
		if !status.Done() || status&(descriptors.StatusErrorMask|descriptors.StatusReserved) != 0 {
			break
		}
		mmio.FromDevice()
		if q.tooLong(p) {
			break
		}
		into[n] = p.d
		release(p.d)
		*p = posting{}
		taken++
		n++
	}
	descriptors.StoreIndex(&q.taken, taken)
	q.mu.Unlock()
	return n
}

// tooLong reports whether a completion says more than its descriptor has room for.
func (q *workQueue) tooLong(p *posting) bool {
	return p.d.Length() > p.length && p.d.Length() > q.tabled
}
