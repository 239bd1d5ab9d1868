package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// CQ is a completion queue: it says on which work queue of which VI a
// descriptor has completed.
type CQ struct {
	object
	p ProviderCQ
}

// Completion says that the oldest outstanding descriptor of a work queue has
// completed. The descriptor itself is taken with VI.SendDone or VI.RecvDone.
type Completion struct {
	VI    *VI
	Queue Queue
}

// CreateCQ makes a completion queue for at least the given number of entries.
// It must be able to hold the completions of all the queues that are tied to
// it; CreateVI checks that.
func (n *NIC) CreateCQ(ctx context.Context, entries int) (*CQ, error) {
	const op = "create CQ"
	if err := n.check(ctx, op); err != nil {
		return nil, err
	}
	if limit := n.attributes.MaxCQEntries; entries < 1 || entries > limit {
		return nil, n.refuse(op, ErrInvalidParameter, "", "%d entries, the NIC takes 1 to %d", entries, limit)
	}
	p, err := n.provider.CreateCQ(ctx, entries)
	if err != nil {
		return nil, n.fail(op, err)
	}
	c := &CQ{object: object{nic: n}, p: p}
	n.mu.Lock()
	n.cqs[p.Number()] = c
	n.mu.Unlock()
	return c, nil
}

// Entries is how many completions the queue holds.
func (c *CQ) Entries() int { return c.p.Entries() }

// Done takes the oldest completion whose descriptor has not been taken back yet. It
// does not block: ErrNotDone, bare, says that there is none.
func (c *CQ) Done() (Completion, error) {
	// Entries of VIs that are destroyed meanwhile are passed over: at most a
	// queue full of them.
	for range c.p.Entries() {
		e, err := c.p.Done()
		if err != nil {
			return Completion{}, c.nic.answer("poll CQ", err)
		}
		if done, ok := c.nic.completion(e); ok {
			return done, nil
		}
	}
	return Completion{}, ErrNotDone
}

// Wait is Done, but waits for a completion until ctx ends.
func (c *CQ) Wait(ctx context.Context) (Completion, error) {
	const op = "wait for CQ"
	if ctx == nil {
		return Completion{}, c.nic.check(ctx, op)
	}
	for {
		e, err := c.p.Wait(ctx)
		if err != nil {
			return Completion{}, c.nic.answer(op, err)
		}
		if done, ok := c.nic.completion(e); ok {
			return done, nil
		}
	}
}

func (n *NIC) completion(e descriptors.Completion) (Completion, bool) {
	c := Completion{VI: n.lookup(e.Endpoint)}
	if e.Flags&descriptors.CompletionReceive != 0 {
		c.Queue = RecvQueue
	}
	return c, c.VI != nil
}

// DestroyCQ is c.Destroy. It refuses nil and a CQ of another NIC with
// ErrInvalidParameter.
func (n *NIC) DestroyCQ(ctx context.Context, c *CQ) error {
	const op = "destroy CQ"
	if c == nil || c.nic != n {
		return n.refuse(op, ErrInvalidParameter, "", "not a CQ of this NIC")
	}
	return c.Destroy(ctx)
}

// Destroy ends the queue. It fails with ErrResource while a VI is tied to it.
func (c *CQ) Destroy(ctx context.Context) error {
	const op = "destroy CQ"
	if err := c.retire(ctx, op, ErrResource, "destroy the VIs that complete to this CQ first"); err != nil {
		return err
	}
	n := c.nic
	if err := c.p.Destroy(ctx); err != nil {
		c.revive()
		return n.fail(op, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.cqs[c.p.Number()] == c {
		delete(n.cqs, c.p.Number())
	}
	return nil
}

func (n *NIC) lookupCQ(number uint32) *CQ {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cqs[number]
}
