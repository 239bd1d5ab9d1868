package driver

import (
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// post posts descriptors until one is refused, and rings once. A device that does not
// take that has failed: then none is posted.
func (q *workQueue) post(ds []*descriptors.Descriptor) (int, error) {
	// Reading a descriptor may panic, see take.
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.PostHeld(ds)
}

// postOne is post for one descriptor.
func (q *workQueue) postOne(d *descriptors.Descriptor) error {
	if d == nil || q.path == nil {
		return q.postAny(d)
	}
	q.mu.Lock()
	if q.n.regions.has(unusual) || !q.quickly(d) {
		q.mu.Unlock()
		return q.postAny(d)
	}
	q.tellPath()
	q.mu.Unlock()
	return nil
}

// quickly does what put does, for a descriptor that was posted to this queue before, in the usual case. Otherwise it returns
// false, and has done nothing. The conditions stand one by one: the compiler makes branches of them then.
func (q *workQueue) quickly(d *descriptors.Descriptor) bool {
	if !q.quick {
		return false
	}
	p := d.Post()
	if p.Holder.Load() != &q.holder { // before Posted, which the holder's lock guards
		return false
	}
	if p.Posted {
		return false
	}
	if p.Seen != q.n.regions.generation.Load()+1 {
		return false
	}
	if d.Status() != 0 {
		return false
	}
	next := q.next
	i := int(next & q.mask)
	if next-q.taken >= q.depth || i >= len(q.tokens) || i >= len(q.posted) {
		return false
	}
	quiet := false
	if q.sends {
		quiet = d.User().Unsignaled
	}
	if q.cq != nil {
		if next-datasheet.LoadIndex(&q.reported) >= q.depth {
			return false
		}
		if word := d.User().Word; q.noted || word != 0 || quiet {
			q.note(uint32(i), word, quiet)
		}
	}
	p.Posted = true
	q.tokens[i] = d.Token()
	to := &q.posted[i]
	to.d, to.length, to.quiet = d, d.Length(), quiet
	q.next = next + 1
	return true
}

// tellPath tells the device of tokens by a path.
func (q *workQueue) tellPath() {
	next := q.next
	datasheet.StoreIndex(&q.producer, next)
	if next>>31 != q.halves&1 {
		datasheet.StoreIndex(&q.halves, q.halves+1)
	}
	if q.sends {
		q.path.Post(next)
	} else {
		q.path.PostReceives(next)
	}
}

// postAny is postOne for any descriptor.
//
//go:noinline
func (q *workQueue) postAny(d *descriptors.Descriptor) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, err := q.PostHeld([]*descriptors.Descriptor{d})
	return err
}

// PostHeld is VI.PostSendBatch, or VI.PostRecvBatch, with the lock held.
func (q *workQueue) PostHeld(ds []*descriptors.Descriptor) (n int, err error) {
	if i := slices.Index(ds, nil); i >= 0 {
		return 0, q.n.error("post "+q.side, fmt.Errorf("%w: descriptor %d of %d is nil", descriptors.ErrInvalidParameter, i, len(ds)))
	}
	for n < len(ds) {
		if q.quickly(ds[n]) {
			n++
			continue
		}
		if err = q.put(ds[n]); err == ErrPosted && q.regain(ds[n]) {
			err = q.put(ds[n])
		}
		if err != nil {
			break
		}
		n++
	}
	if n > 0 {
		if lost := q.tell(uint32(n)); lost != nil {
			return 0, lost
		}
	}
	if err != nil {
		err = q.refused(err)
	}
	return n, err
}

// tell tells the device of the last n tokens. One that does not take that has failed.
func (q *workQueue) tell(n uint32) error {
	if q.ring != nil {
		q.pushTokens()
	}
	if q.unflushed {
		mmio.FlushWriteCombining()
		q.unflushed = false
	}
	guarded := q.path != nil && q.n.regions.has(unusualForeign)
	if q.path != nil && !guarded {
		q.tellPath()
		if q.n.regions.has(unusualPump) {
			q.n.posted()
		}
		return nil
	}
	datasheet.StoreIndex(&q.producer, q.next)
	if guarded {
		q.path.PostGuarded(!q.sends, q.next)
	} else if lost := q.bell.ring(q.next); lost != nil {
		q.next -= n
		datasheet.StoreIndex(&q.producer, q.next)
		return q.refused(lost)
	}
	if q.next>>31 != q.halves&1 {
		datasheet.StoreIndex(&q.halves, q.halves+1)
	}
	q.n.posted()
	return nil
}

// put appends the token of d, without telling the device. mu is held.
func (q *workQueue) put(d *descriptors.Descriptor) error {
	if q.closed || q.refuses {
		return q.closedAs
	}
	if q.room() == 0 && !q.makeRoom() {
		return descriptors.ErrQueueFull
	}
	t, regions := d.Token(), &q.n.regions
	if !q.spans.covers(t, regions.generation.Load()) {
		if err := q.spans.find(t, regions, q.vi.attributes.Load().Ptag); err != nil {
			return err
		}
	}
	seen := q.spans[t.Handle%uint32(len(q.spans))].generation
	// Claimed before its status is looked at: of a descriptor that is posted that is
	// the device's to write.
	if p := d.Post(); p.Holder.Load() == &q.holder && !p.Posted {
		p.Posted = true // as claim does, without a call
	} else if err := q.claim(d); err != nil {
		return err
	}
	if d.Status() != 0 {
		d.Post().Posted = false
		return ErrNotRearmed
	}
	if d.Post().Seen = seen; (seen-1)&(unusualEager|unusualPump) != 0 {
		d.Post().Seen = 0 // it is for this method the next time, too
	}
	if regions.has(unusualEager) {
		q.push(d, t)
	}
	i := q.next & q.mask
	token := &q.tokens[i]
	*token = t
	if q.shared {
		i = q.name(token)
	}
	u := d.User()
	quiet := u.Unsignaled && q.sends
	if q.cq != nil && (q.noted || u.Word != 0 || quiet) {
		q.note(i, u.Word, quiet)
	}
	q.posted[i] = posting{d: d, length: d.Length(), quiet: quiet}
	q.next++
	if q.sampler != nil {
		q.timeSend()
		q.sampler.posted(q.next)
	}
	return nil
}

// makeRoom passes over what has completed unseen, and reports whether there is room then. mu is held.
func (q *workQueue) makeRoom() bool {
	if q.passQuiet() && q.room() != 0 {
		return true
	}
	return q.cq != nil && !q.shared && q.next-q.taken < q.depth && q.cq.makeRoom(q) && q.room() != 0
}

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

// refused says what post refused.
func (q *workQueue) refused(err error) error {
	switch {
	case err == descriptors.ErrQueueFull && q.n.failed() != nil:
		err = q.n.failed() // there never will be room
	case err == descriptors.ErrQueueFull, err == q.closedAs:
		return err
	case err == descriptors.ErrInvalidPtag:
		return q.n.refuse("post "+q.side, err, "VI and memory must have the same protection tag")
	}
	return q.n.error("post "+q.side, err)
}

// push has the device have the eager memory of a descriptor that is about to be posted: the
// descriptor itself, and of a send what its segments name. The queue's lock is held.
func (q *workQueue) push(d *descriptors.Descriptor, t datasheet.Token) {
	table := &q.n.regions
	if e := q.eagers.find(t.Handle, table); e != nil {
		size := datasheet.ControlSegmentSize + uint32(d.Control().SegCount)*datasheet.DataSegmentSize
		e.posted(t.Address, uint64(size), true)
		q.unflushed = true
	}
	if q.sends {
		for _, s := range d.Sources() {
			q.unflushed = q.eagers.source(s, table) || q.unflushed
		}
	}
}

// pushTokens has the device have the tokens that are about to be announced, by one write of
// each block that has some of them. The queue's lock is held, and stands for that of the ring.
func (q *workQueue) pushTokens() {
	size := q.mask + 1
	first, n := q.producer&q.mask, q.next-q.producer
	if rest := size - first; n > rest {
		q.ring.pushRing(0, n-rest)
		n = rest
	}
	q.ring.pushRing(first, n)
	q.unflushed = true
}
