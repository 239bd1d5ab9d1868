package driver

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// createEager is createVI for a VI whose tokens are eager (SPEC.md 4.4), as a.NoRoom says.
func (n *NIC) createEager(ctx context.Context, a VIAttributes, sendCQ, recvCQ *CQ) (*VI, error) {
	return eagerly(ctx, n, a.NoRoom, fieldOptions, func(eager bool) (*VI, error) {
		a.EagerTokens = eager
		return n.createVI(ctx, a, sendCQ, recvCQ)
	})
}

// layTokens gives the rings of v the device memory that the reply to CREATE_ENDPOINT names,
// and has the device have all of them as they are: from here on blocks stay good, and only
// those are pushed in which tokens are posted.
func (v *VI) layTokens(reply *descriptors.EndpointCreated) error {
	for _, r := range []struct {
		q  *workQueue
		at uint64
	}{{&v.send, uint64(reply.Send)}, {&v.recv, uint64(reply.Recv)}} {
		if r.q == &v.recv && v.source() != nil {
			continue
		}
		e := v.n.newEager(r.q.bytes, v.rings.iova+uint64(len(v.send.bytes)))
		if r.q == &v.send {
			e.first = v.rings.iova
		}
		e.Eager = descriptors.EagerLayout(e.first, uint64(len(e.bytes)), descriptors.EagerLog2)
		if r.at%unit != 0 || !e.lay(descriptors.EagerLog2, r.at, r.at+e.BlockBytes()) {
			return fmt.Errorf("%w: it gave out blocks for the %s queue at %#x", ErrProtocol, r.q.side, r.at)
		}
		e.pushBlocks(0, e.Count)
		r.q.ring = e
	}
	return nil
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

// pushRing pushes the blocks of n tokens, which are good already.
func (e *Eager) pushRing(first, n uint32) {
	from, end := e.Span(uint64(first)*descriptors.TokenSize, uint64(n)*descriptors.TokenSize)
	e.copyBlocks(from, end)
	e.stats.Pushed += end - from
}

// eagerTokens is what has been counted of the queue's tokens.
func (q *workQueue) eagerTokens() (s EagerStats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ring != nil {
		s = q.ring.stats
	}
	return s
}
