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
	// User is the word of the application's own in the descriptor, as it was when it was
	// posted: see Descriptor.User.
	User uint64
	// Descriptor, of a ReceiveQueue, is the receive itself: there is nothing more to
	// take. Err is RecvDone's error: nil, or one that holds a
	// *StatusError. VI is the VI that took the receive, which may be destroyed by now.
	// Descriptor is nil of other queues.
	Descriptor *Descriptor
	Err        error
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

// CQStats has the counters of a CQ, with the name, help and unit of each in its tags.
type CQStats = driver.CQStats

// Stats returns the counters of the CQ. It fails with ErrClosed once the CQ is closed.
func (c *CQ) Stats() (CQStats, error) { return c.d.Stats() }

// Entries returns the number of completions that the queue holds.
func (c *CQ) Entries() int { return c.d.Entries() }

// Resize gives the queue room for at least the given number of entries, more or fewer.
// Completions that are in it stay, and it can be used meanwhile. It fails with
// ErrResource, and changes nothing, if the queues that are tied to it could fill it.
func (c *CQ) Resize(ctx context.Context, entries int) error { return c.d.Resize(ctx, entries) }

// Done takes the oldest completion whose descriptor has not been taken back yet. It
// does not block: ErrNotDone, bare, says that there is none.
func (c *CQ) Done() (done Completion, err error) {
	err = c.take(&done, true)
	return done, err
}

// Ready is Done that does not run a NIC which works in its callers' calls.
func (c *CQ) Ready() (done Completion, err error) {
	err = c.take(&done, false)
	return done, err
}

// take writes the completion to done: to copy what has just been written waits for the stores.
func (c *CQ) take(done *Completion, run bool) error {
	var e driver.Completion
	err := c.d.Take(&e, run)
	if err == nil {
		done.say(&e)
	}
	return err
}

// Wait waits for a completion until ctx ends, and takes it as Done does.
func (c *CQ) Wait(ctx context.Context) (done Completion, err error) {
	e, err := c.d.Wait(ctx)
	if err == nil {
		done.say(&e)
	}
	return done, err
}

// Notify has f called with the next completion, as Done takes it, on a goroutine of its
// own. Each call is for one completion; the handlers are called in the order of the
// calls, one at a time, and may call anything. A CQ that is closed, or whose NIC is,
// forgets them; if the NIC fails they are called with the error.
func (c *CQ) Notify(f func(Completion, error)) error {
	if f == nil {
		return c.d.Notify(nil)
	}
	return c.d.Notify(func(e driver.Completion, err error) {
		var done Completion
		if err == nil {
			done.say(&e)
		}
		f(done, err)
	})
}

// FD is a file descriptor for epoll and its like, the same each time. It becomes readable
// when there is a completion, or the NIC has failed, after each call of Arm. Who finds it
// readable reads its 8 bytes, calls Done until that says ErrNotDone, and then Arm again:
// what comes in between is not missed. It belongs to the CQ and is closed with it.
func (c *CQ) FD() (int, error) { return c.d.FD() }

// Arm has FD become readable, once, as soon as there is a completion, at once if there is
// one. A goroutine waits for that, and steps a NIC that needs it. Arm fails with
// ErrInvalidState before the first call of FD.
func (c *CQ) Arm() error { return c.d.Arm() }

// say says in this package's words whose completion e is. Field by field: a processor waits
// where two are read as one that were written one after the other.
func (c *Completion) say(e *driver.Completion) {
	c.VI, _ = e.VI.User().(*VI)
	c.Queue = SendQueue
	if e.Receive {
		c.Queue = RecvQueue
	}
	c.User, c.Descriptor, c.Err = e.User, e.Descriptor, e.Err
}

// Close ends the queue. It fails with ErrResource while a VI is tied to it.
func (c *CQ) Close(ctx context.Context) error { return c.d.Close(ctx) }
