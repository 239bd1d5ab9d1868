package main

import (
	"context"
	"sync"

	"github.com/trapeze-nic/trapeze/via"
)

// cq is a completion queue. It grows with the queues that are tied to it: how many
// entries a program asks for says little, as it cannot say how deep its queues are.
type cq struct {
	name handle
	nic  *nic
	via  *via.CQ

	mu      sync.Mutex
	claimed int // guarded by mu: descriptors that the queues tied to it hold
}

func (n *nic) createCQ(entries int) (*cq, error) {
	made, err := n.device.via.CreateCQ(n.ctx, entries)
	if err != nil {
		return nil, err
	}
	c := &cq{nic: n, via: made}
	if err := enter(n, &cqs, c, &c.name, n.cqs); err != nil {
		_ = made.Close(context.Background())
		return nil, err
	}
	return c, nil
}

// claim makes room for so many more completions, or says that so many fewer can come. No
// CQ takes any number.
func (c *cq) claim(entries int) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if needed, now := c.claimed+entries, c.via.Entries(); needed > now {
		// Twice as much, as each resizing copies: else many VIs at one CQ take quadratic time.
		roomy := max(needed, min(2*now, c.nic.device.via.Query().MaxCQEntries))
		if err := c.via.Resize(c.nic.ctx, roomy); err != nil {
			return via.ErrResource
		}
	}
	c.claimed += entries
	return nil
}

// resize gives the queue room for entries, or for what the queues tied to it need.
func (c *cq) resize(entries int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.via.Resize(c.nic.ctx, max(entries, c.claimed))
}

func (c *cq) destroy() error {
	if err := c.via.Close(c.nic.ctx); err != nil {
		return err
	}
	cqs.remove(c.name)
	c.nic.mu.Lock()
	defer c.nic.mu.Unlock()
	delete(c.nic.cqs, c)
	return nil
}

// driver is the CQ of package via, nil for none.
func (c *cq) driver() *via.CQ {
	if c == nil {
		return nil
	}
	return c.via
}

// owner returns the VI of a completion. One that is being destroyed has none.
func (c *cq) owner(of *via.VI) *vi {
	v, ok := c.nic.device.vis.Load(of)
	if !ok {
		return nil
	}
	return v.(*vi)
}
