package driver

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Resize gives the CQ room for another number of entries, 1 to the device's limit.
// Nothing that is in it is lost, and others may use it meanwhile. It fails with
// ErrCQTooSmall if the queues that complete there could fill it.
func (c *CQ) Resize(ctx context.Context, entries int) error {
	const op = "resize CQ"
	n := c.n
	return n.do(ctx, op, func() error {
		if err := n.checkEntries(entries); err != nil {
			return err
		}
		c.change.Lock()
		defer c.change.Unlock()
		before, err := n.promise(c, entries)
		if err != nil {
			return err
		}
		r, err := n.newCQRing(ctx, entries)
		if err != nil {
			n.setEntries(c, before)
			return err
		}
		reply, err := n.execute(ctx, newCommand(datasheet.OpResizeCQ, datasheet.ResizeCQBody{
			IOVA: r.buf.IOVA, IndexIOVA: r.buf.IOVA + r.indexAt, CQ: c.number, Log2: r.log2,
		}))
		if err != nil {
			if outcomeUnknown(err) {
				c.end(n.error(op, err)) // the place of the next entry is not known
			}
			n.setEntries(c, before)
			return n.release(r.buf, err)
		}
		if err := c.move(r, datasheet.Reply[datasheet.ResizeCQReply](reply).Written); err != nil {
			return err
		}
		old := c.buf
		c.buf = r.buf
		n.setEntries(c, entries)
		return n.space.Free(old)
	})
}

// promise sees to it that no more completions are promised than fit both sizes of c,
// and returns the present one.
func (n *NIC) promise(c *CQ, entries int) (before int, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case c.leaving.ended != nil:
		return 0, descriptors.ErrClosed
	case c.promised > entries:
		return 0, fmt.Errorf("%w: %d entries, %d of them promised to queues", ErrCQTooSmall, entries, c.promised)
	}
	before = c.entries
	c.entries = min(before, entries)
	return before, nil
}

func (n *NIC) setEntries(c *CQ, entries int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	c.entries = entries
}

// move takes what is left in the present ring, to which the device has written that
// many entries in all, and goes on in r.
func (c *CQ) move(r cqRing, written uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ring == nil {
		return c.closedAs
	}
	c.drain()
	if !c.closed && c.taken != written {
		c.fail(c.n.error(c.side, fmt.Errorf("%w: it says that it wrote %d entries to completion queue %d, and %d were found",
			ErrProtocol, written, c.number, c.taken)))
	}
	c.use(r)
	return nil
}
