package driver

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

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
	rings := []pushedRing{{q: &v.send, iova: v.rings.IOVA, at: uint64(reply.Send)},
		{q: &v.recv, iova: v.rings.IOVA + uint64(len(v.send.bytes)), at: uint64(reply.Recv)}}
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

// pushRing pushes the blocks of n tokens, which are good already.
func (e *Eager) pushRing(first, n uint32) {
	from, end := e.Span(uint64(first)*datasheet.TokenSize, uint64(n)*datasheet.TokenSize)
	e.copyBlocks(from, end)
	e.stats.Pushed += end - from
}
