package via

import (
	"context"

	"github.com/trapeze-nic/trapeze/driver"
)

// CQ is a completion queue: it says on which work queue of which VI a
// descriptor has completed.
type CQ struct {
	nic *NIC
	d   *driver.CQ
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
	d, err := n.d.CreateCQ(ctx, entries)
	if err != nil {
		return nil, err
	}
	c := &CQ{nic: n, d: d}
	d.SetUser(c)
	return c, nil
}

// Entries is how many completions the queue holds.
func (c *CQ) Entries() int { return c.d.Entries() }

// Resize gives the queue room for at least the given number of entries, more or fewer.
// Completions that are in it stay, and it can be used meanwhile. It fails with
// ErrResource, and changes nothing, if the queues that are tied to it could fill it.
func (c *CQ) Resize(ctx context.Context, entries int) error { return c.d.Resize(ctx, entries) }

// Done takes the oldest completion whose descriptor has not been taken back yet. It
// does not block: ErrNotDone, bare, says that there is none.
func (c *CQ) Done() (Completion, error) {
	e, err := c.d.Done()
	if err != nil {
		return Completion{}, err
	}
	return completion(e), nil
}

// Wait waits for a completion until ctx ends, and takes it as Done does.
func (c *CQ) Wait(ctx context.Context) (Completion, error) {
	e, err := c.d.Wait(ctx)
	if err != nil {
		return Completion{}, err
	}
	return completion(e), nil
}

// completion says in this package's words whose completion e is.
func completion(e driver.Completion) Completion {
	v, _ := e.VI.User().(*VI)
	if e.Receive {
		return Completion{v, RecvQueue}
	}
	return Completion{v, SendQueue}
}

// Destroy ends the queue. It fails with ErrResource while a VI is tied to it.
func (c *CQ) Destroy(ctx context.Context) error { return c.d.Destroy(ctx) }
