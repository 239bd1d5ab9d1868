package driver

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

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
