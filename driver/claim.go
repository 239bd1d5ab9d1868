package driver

import "github.com/trapeze-nic/trapeze/descriptors"

// A descriptor is posted to one queue at a time. The queue to
// which it was posted last holds it, and under that queue's lock it is noted whether
// it is posted: who posts to the same queue again and again needs no further lock and
// no locked instruction. Another queue first has the holder let go.

// regain has the queue that holds d, if it is another than q, let go of it, and reports
// whether it is worth to claim d once more. mu is held, but not meanwhile: only one
// queue's lock is held at a time.
func (q *workQueue) regain(d *descriptors.Descriptor) bool {
	h := d.Post().Holder.Load()
	if h == &q.holder {
		return false
	}
	if h != nil {
		q.mu.Unlock()
		(*h).LetGo(d)
		q.mu.Lock()
	}
	return true
}

// LetGo is described at descriptors.Holder.
func (q *workQueue) LetGo(d *descriptors.Descriptor) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := d.Post(); p.Holder.Load() == &q.holder && !p.Posted {
		p.Holder.Store(nil)
	}
}

// claim notes that d, which q does not hold or has posted, is posted to q. It fails
// with ErrBadHandle, ErrPosted or ErrOtherVI. mu is held.
func (q *workQueue) claim(d *descriptors.Descriptor) error {
	// Where a descriptor is and where it says that it is never change: one that q holds was looked at.
	if !liesAt(d, d.Token().Address) {
		return ErrBadHandle
	}
	p := d.Post()
	if p.Owner != 0 && p.Owner != q.vi.key {
		return ErrOtherVI
	}
	if !p.Holder.CompareAndSwap(nil, &q.holder) {
		return ErrPosted
	}
	p.Posted = true
	return nil
}

// release undoes claim: d is its program's again. mu is held.
func release(d *descriptors.Descriptor) { d.Post().Posted = false }
