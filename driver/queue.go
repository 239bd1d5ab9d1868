package driver

import (
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// workQueue is one side of a VI: a ring of tokens in DMA memory, which the
// device reads, and beside it what was posted.
type workQueue struct {
	queue
	vi *VI
	// sends and which say which of the two it is.
	sends bool
	which Queue
	cq    *CQ // nil for none
	vec   *vector
	// holder is the queue itself, as descriptors know it.
	holder descriptors.Holder

	bytes    []byte // of tokens
	tokens   []datasheet.Token
	posted   []posting
	notes    []note // of what is posted, for the CQ, which reads them without mu
	noted    bool   // there are, or were, notes
	depth    uint32
	producer uint32 // next, as the device was told; read by the CQ without mu, as taken
	halves   uint32 // how often next has passed a multiple of 2^31; read without mu, as taken
	failed   uint64 // those of them that have completed in error
	spans    spans
	quick    bool            // see hasten
	ring     *Eager          // the tokens in the device's memory, nil if they are ordinary
	sampler  *latencySampler // of sends, nil if none are timed
	// unflushed: something was pushed since the doorbell was rung.
	unflushed bool
	tabled    uint32 // bytes of the largest entry that the payload table ever had

	// Of a queue with a CQ: how many of its entries the consumer has been given or
	// needs no more (read by post without the CQ's lock), and how many the CQ has
	// found (guarded by the CQ's lock).
	reported uint32
	found    uint32

	notices notices[*descriptors.Descriptor]

	// shared says that several VIs take their receives from the queue, and complete them
	// out of order: a descriptor is at the place in posted by which its token names it,
	// and taken counts. free are the places that are free.
	shared bool
	free   []uint32
}

// posting is one posted descriptor.
type posting struct {
	d      *descriptors.Descriptor
	length uint32 // total of its segments, as it said at the post
	lost   bool   // the device says that it cannot write the status
	quiet  bool   // the application wants no completion of it, unless it fails
	found  bool   // of a shared queue: its CQ has found the completion
}

// note is the application's note of a posted descriptor, for the CQ, which reads
// it when the device has completed the descriptor.
type note struct{ word, quiet uint64 }

// note notes it of what is posted at place. Most programs note nothing, for which no note is
// stored either. The queue has a CQ, and mu is held.
func (q *workQueue) note(place uint32, word uint64, quiet bool) {
	q.noted = true
	n := &q.notes[place]
	datasheet.StoreWord(&n.word, word)
	flag := uint64(0)
	if quiet {
		flag = 1
	}
	datasheet.StoreWord(&n.quiet, flag)
}

// hasten notes whether there is a usual case on this queue.
func (q *workQueue) hasten() {
	q.quick = q.path != nil && !q.closed && !q.refuses && !q.shared && q.ring == nil && q.sampler == nil && q.vi.send.sampler == nil
}

// A descriptor is posted to one queue at a time. The queue to
// which it was posted last holds it, and under that queue's lock it is noted whether
// it is posted: who posts to the same queue again and again needs no further lock and
// no locked instruction. Another queue first has the holder let go.

// room returns the number of descriptors that may be posted, as far as the CQ has been read.
func (q *workQueue) room() uint32 {
	used := q.next - q.taken
	if q.cq != nil {
		used = max(used, q.next-datasheet.LoadIndex(&q.reported))
	}
	return q.depth - min(used, q.depth)
}

// allow has completions say up to length bytes, whatever their descriptors hold.
func (q *workQueue) allow(length uint32) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.tabled = max(q.tabled, length)
}

// init makes a queue of depth descriptors over a ring that has room for them.
func (q *workQueue) init(v *VI, side string, cq *CQ, depth int, ring []byte) {
	q.n, q.vi, q.side, q.cq, q.depth, q.holder = v.n, v, side, cq, uint32(depth), q
	q.bytes, q.tokens = ring, datasheet.TokensAt(ring)
	q.posted = make([]posting, len(q.tokens))
	q.mask = uint32(len(q.tokens) - 1)
	if q.sends = q == &v.send; !q.sends {
		q.which = RecvQueue
	}
	if k := v.n.options.SampleLatency; q.sends && k > 0 {
		q.sampler = newLatencySampler(k)
	}
	if cq == nil {
		q.vec = v.n.pickVector()
	} else {
		q.notes = make([]note, len(q.tokens))
	}
	q.closedAs = v.n.error("use "+side+" queue", descriptors.ErrClosed)
}

// counts returns how many descriptors were posted, were taken back, and completed in error.
func (q *workQueue) counts() (posted, completed, failed uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	posted = widened(q.halves, q.next)
	return posted, posted - uint64(q.next-q.taken), q.failed
}

// widened is a count of descriptors whose low half is index. halves counts the multiples of 2^31
// that it has passed, and may lag behind by one.
func widened(halves, index uint32) uint64 {
	if halves&1 != index>>31 {
		halves++
	}
	return uint64(halves>>1)<<32 | uint64(index)
}

// indices says how many descriptors were taken back and posted. It takes no lock.
func (q *workQueue) indices() (taken, posted uint64) {
	before := datasheet.LoadIndex(&q.taken)
	halves, next := datasheet.LoadIndex(&q.halves), datasheet.LoadIndex(&q.producer)
	posted = widened(halves, next)
	return posted - uint64(next-before), posted
}

func (q *workQueue) eagerTokens() (s EagerStats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ring != nil {
		s = q.ring.stats
	}
	return s
}

// name gives t a free place, of which there is one. mu is held.
func (q *workQueue) name(t *datasheet.Token) uint32 {
	last := len(q.free) - 1
	t.Flags = q.free[last]
	q.free = q.free[:last]
	return t.Flags
}

// completes reports whether the device may say that the descriptor at place index has completed,
// which it does once. The lock of the CQ is held: a queue that is shared never needs that one
// while it holds its own.
func (q *workQueue) completes(index uint32) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return true // what it completes is passed over
	}
	if index >= uint32(len(q.posted)) {
		return false
	}
	p := &q.posted[index]
	sound := p.d != nil && !p.found
	p.found = true
	return sound
}

// releaseShared gives what is posted to a queue that is shared back to the program. mu is
// held.
func (q *workQueue) releaseShared() {
	if !q.shared || q.closed {
		return
	}
	for i := range q.posted {
		if d := q.posted[i].d; d != nil {
			d.Post().Posted = false
		}
	}
	q.taken = q.next
}
