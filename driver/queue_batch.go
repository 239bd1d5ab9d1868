package driver

import (
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// pollBatch takes the oldest descriptors that have completed, as many as into has
// room for. One that completed in error comes alone.
func (q *workQueue) pollBatch(into []*descriptors.Descriptor) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pollBatchHeld(into)
}

// pollBatchHeld is pollBatch with mu held.
func (q *workQueue) pollBatchHeld(into []*descriptors.Descriptor) (int, error) {
	if len(into) == 0 {
		return 0, nil
	}
	if n := q.takeSound(into); n > 0 {
		if q.vi.send.timing() {
			q.vi.send.timeSendFrom(q)
		}
		return n, nil
	}
	d, err := q.pollHeld(true)
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
// is. mu is held.
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
		release(d)
		*p = posting{}
		n++
	}
	q.pass(uint32(n))
	return n
}

// Held is a queue of a VI for one who keeps something of his own beside it: its lock is the lock
// of both. It must not be held across anything that blocks.
type Held struct {
	*hotlock.Mutex
	q *workQueue
}

// Held returns the queues of the VI.
func (v *VI) Held() (send, recv Held) {
	return Held{&v.send.mu, &v.send}, Held{&v.recv.mu, &v.recv}
}

// Post is PostSendBatch, or PostRecvBatch, with the lock held.
func (h Held) Post(ds []*descriptors.Descriptor) (posted int, err error) { return h.q.postHeld(ds) }

// Done is SendDone, or RecvDone, with the lock held, but not while it finds out what an error means.
func (h Held) Done() (*descriptors.Descriptor, error) { return h.q.pollHeld(true) }

// DoneBatch is SendDoneBatch, or RecvDoneBatch, as Done is.
func (h Held) DoneBatch(into []*descriptors.Descriptor) (int, error) { return h.q.pollBatchHeld(into) }

// tooLong reports whether a completion says more than its descriptor has room for. An RDMA
// write of the peer has gone elsewhere.
func (q *workQueue) tooLong(p *posting) bool {
	n := p.d.Length()
	return n > p.length && n > q.tabled && !q.vi.written(p.d)
}

// written reports whether d is a receive that an RDMA write of the peer has ended.
func (v *VI) written(d *descriptors.Descriptor) bool {
	a := v.Attributes()
	return a.Rights&datasheet.AccessRDMAWrite != 0 && d.Length() <= a.MaxTransfer &&
		d.Status()&datasheet.StatusOpMask == datasheet.StatusOpRemoteRDMAWrite
}
