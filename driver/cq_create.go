package driver

import (
	"context"
	"errors"
	"fmt"
	"math/bits"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver/internal/dma"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// CreateCQ makes a completion queue for at least the given number of entries, 1 to the NIC's limit.
// It must be able to hold the completions of all the queues that are tied to
// it; CreateVI checks that.
func (n *NIC) CreateCQ(ctx context.Context, entries int) (*CQ, error) {
	return get(ctx, n.do, "create CQ", func() (*CQ, error) {
		if err := n.checkEntries(entries); err != nil {
			return nil, err
		}
		r, err := n.newCQRing(ctx, entries)
		if err != nil {
			return nil, err
		}
		c := &CQ{queue: queue{n: n, side: "poll CQ"}, entries: entries, buf: r.buf, vec: n.pickVector()}
		c.use(r)
		reply, err := n.execute(ctx, newCommand(datasheet.OpCreateCQ, datasheet.CreateCQBody{
			IOVA: r.buf.IOVA, IndexIOVA: r.buf.IOVA + r.indexAt, Vector: vectorNumber(c.vec), Log2: r.log2,
		}))
		if err != nil {
			return nil, n.release(r.buf, err)
		}
		c.number = datasheet.Reply[datasheet.CQBody](reply).CQ
		if c.number >= n.identity.MaxCQs {
			return nil, n.fail(fmt.Errorf("%w: it gave out completion queue %d of %d", ErrProtocol, c.number, n.identity.MaxCQs))
		}
		if n.local != nil {
			c.path = n.local.CQPath(c.number)
		}
		c.armBell = n.doorbellAt(datasheet.CQPage(n.identity.MaxEndpoints, c.number) + datasheet.DoorbellCQArm)
		if !n.enterCQ(c) {
			return nil, n.fail(fmt.Errorf("%w: it gave out completion queue %d twice", ErrProtocol, c.number))
		}
		return c, nil
	})
}

// enterCQ is adopt for a CQ. It reports false if another one has its number.
func (n *NIC) enterCQ(c *CQ) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.cqs[c.number]; old != nil {
		n.mu.Unlock()
		old.leaving.wait(n)
		n.mu.Lock()
	}
	if n.cqs[c.number] != nil {
		return false
	}
	n.cqs[c.number] = c
	return true
}

// Close ends the CQ. It fails with ErrInUse while a VI completes there. A second call
// does nothing.
func (c *CQ) Close(ctx context.Context) error {
	n := c.n
	return n.doClosing(ctx, "close CQ", func() error {
		c.change.Lock()
		defer c.change.Unlock()
		return c.leaving.close(ctx, n, "close the VIs that complete there first", func() bool { return c.promised > 0 },
			newCommand(datasheet.OpDestroyCQ, datasheet.CQBody{CQ: c.number}), func(err error) error {
				c.close()
				if err = errors.Join(err, c.endNotices()); err != nil {
					return err
				}
				n.mu.Lock()
				delete(n.cqs, c.number)
				n.mu.Unlock()
				return n.space.Free(c.buf)
			})
	})
}

// attach promises room for depth completions in c, which may be nil.
func (n *NIC) attach(c *CQ, depth int) error {
	if c == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case c.n != n:
		return fmt.Errorf("%w: not a completion queue of this NIC", descriptors.ErrInvalidParameter)
	case c.leaving.ended != nil:
		return fmt.Errorf("completion queue: %w", descriptors.ErrClosed)
	case depth > c.entries-c.promised:
		return fmt.Errorf("%w: %d entries, %d of them promised to other queues, and %d more needed", ErrCQTooSmall, c.entries, c.promised, depth)
	}
	c.promised += depth
	return nil
}

func (n *NIC) detach(c *CQ, depth int) {
	if c == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c.promised -= depth
}

// cqNumber is c's number as a command wants it.
func cqNumber(c *CQ) uint32 {
	if c == nil {
		return datasheet.NoCQ
	}
	return c.number
}

// cqRing is memory for the entries of a CQ, and for the index that the device reads.
type cqRing struct {
	buf     *dma.Buffer
	indexAt uint64
	log2    uint8
}

func (n *NIC) checkEntries(entries int) error {
	if entries < 1 || entries > n.identity.MaxCQEntries {
		return hinted(fmt.Errorf("%w: %d entries", descriptors.ErrInvalidParameter, entries),
			fmt.Sprintf("this device has completion queues of 1 to %d entries", n.identity.MaxCQEntries))
	}
	return nil
}

func (n *NIC) newCQRing(ctx context.Context, entries int) (r cqRing, err error) {
	r.log2 = max(uint8(bits.Len(uint(entries-1))), datasheet.MinCQLog2)
	const indexLine = 64 // the index on a cache line of its own
	r.indexAt = (uint64(datasheet.CompletionSize)<<r.log2 + indexLine - 1) &^ (indexLine - 1)
	r.buf, err = n.space.Ring(ctx, r.indexAt+indexLine, vfio.DMARead|vfio.DMAWrite)
	return r, err
}

// use makes the CQ read entries from r, from the first on. mu is held, or no other call
// knows the CQ.
func (c *CQ) use(r cqRing) {
	b := r.buf.Bytes()
	c.ring = datasheet.CompletionsAt(b[:uint64(datasheet.CompletionSize)<<r.log2])
	c.index = datasheet.IndexAt(b[r.indexAt:])
	c.log2, c.mask = r.log2, 1<<r.log2-1
	c.taken = 0
}
