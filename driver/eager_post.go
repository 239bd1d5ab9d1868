package driver

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// eagerAtPost is the number of bytes of one segment that are pushed at a post. From there on the
// processor's stores take longer than the device's reads.
const eagerAtPost = 4096

// eagers is a work queue's memory of the regions that its descriptors named last, and of
// which of them are eager. What was found has the generation of the region table, plus one.
type eagers [4]struct {
	generation uint64
	handle     uint32
	e          *Eager
}

// find returns the writer of the region handle, nil if it is not eager.
func (s *eagers) find(handle uint32, table *regionTable) *Eager {
	at := &s[handle%uint32(len(s))]
	if generation := table.generation.Load() + 1; at.generation != generation || at.handle != handle {
		table.mu.RLock()
		defer table.mu.RUnlock()
		m := table.m[handle]
		if m == nil {
			return nil // one that takes its place must be found
		}
		at.generation, at.handle, at.e = table.generation.Load()+1, handle, nil
		if m.IsEager() {
			at.e = m.eager.Load()
		}
	}
	return at.e
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

// source has the device have the eager memory of a segment that it is going to read. It
// reports whether the segment is eager; then a flush of write combining goes ahead of the
// doorbell.
func (s *eagers) source(d datasheet.DataSegment, table *regionTable) bool {
	e := s.find(d.Handle, table)
	if e != nil {
		e.posted(d.Address, uint64(d.Length), e.mode == EagerAtPost)
	}
	return e != nil
}

// posted is called before the device may read n bytes at an application address: all says
// that the device must have their blocks as they are now, or none of them. Bytes that are not
// the memory's are left to the device, which refuses them.
func (e *Eager) posted(address, n uint64, all bool) {
	offset := address - e.first
	if n == 0 || offset > uint64(len(e.bytes)) || n > uint64(len(e.bytes))-offset {
		return
	}
	e.mu.Lock()
	switch {
	case e.closed || e.blocks == nil:
	case !all:
		e.leave()
	case n > eagerAtPost:
		e.leave()
		e.takeBack(e.Span(offset, n))
	default:
		e.pushBlocks(e.Span(offset, n))
	}
	e.mu.Unlock()
}

// createEager is createVI for a VI whose tokens are eager (SPEC.md 4.4), as a.NoRoom says.
func (n *NIC) createEager(ctx context.Context, a VIAttributes, sendCQ, recvCQ *CQ) (*VI, error) {
	return eagerly(ctx, n, a.NoRoom, fieldOptions, func(eager bool) (*VI, error) {
		a.EagerTokens = eager
		return n.createVI(ctx, a, sendCQ, recvCQ)
	})
}

// pushedRing is where the device says that the blocks of a queue's tokens are.
type pushedRing struct {
	q    *workQueue
	iova uint64
	at   uint64
	ring *Eager
}

// layTokens gives the rings of v the device memory that the reply to CREATE_ENDPOINT names,
// and has the device have all of them as they are: from here on blocks stay good, and only
// those are pushed in which tokens are posted.
func (v *VI) layTokens(reply *datasheet.EndpointCreated) error {
	rings := []pushedRing{{q: &v.send, iova: v.rings.iova, at: uint64(reply.Send)},
		{q: &v.recv, iova: v.rings.iova + uint64(len(v.send.bytes)), at: uint64(reply.Recv)}}
	if v.source() != nil {
		rings = rings[:1] // the receives are another's
	}
	for i := range rings {
		r := &rings[i]
		e := v.n.newEager(r.q.bytes, r.iova)
		blocks := datasheet.EagerLayout(r.iova, uint64(len(e.bytes)), datasheet.EagerLog2).BlockBytes()
		if r.at%unit != 0 || !e.lay(datasheet.EagerLog2, r.at, r.at+blocks) || i > 0 && r.overlaps(&rings[0]) {
			return fmt.Errorf("%w: it gave out blocks for the %s queue at %#x", ErrProtocol, r.q.side, r.at)
		}
		r.ring = e
	}
	for _, r := range rings {
		r.ring.pushBlocks(0, r.ring.Count)
		r.q.ring = r.ring
	}
	return nil
}

// end is the offset in BAR4 behind the status of the blocks.
func (r *pushedRing) end() uint64 {
	e := datasheet.EagerLayout(r.iova, uint64(len(r.q.bytes)), datasheet.EagerLog2)
	return r.at + e.BlockBytes() + e.StatusBytes()
}

func (r *pushedRing) overlaps(o *pushedRing) bool { return r.at < o.end() && o.at < r.end() }

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

// pushRing pushes the blocks of n tokens, which are good already.
func (e *Eager) pushRing(first, n uint32) {
	from, end := e.Span(uint64(first)*datasheet.TokenSize, uint64(n)*datasheet.TokenSize)
	e.copyBlocks(from, end)
	e.stats.Pushed += end - from
}

func (q *workQueue) eagerTokens() (s EagerStats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ring != nil {
		s = q.ring.stats
	}
	return s
}
