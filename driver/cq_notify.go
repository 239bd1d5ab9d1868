package driver

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Notify calls f with the next completion, as Done takes it, on a goroutine of its
// own. Each call is for one completion; the handlers are called in the order of the
// calls, one at a time, and may call anything. A CQ that is closed, or whose NIC is,
// forgets them; if the NIC fails they are called with the error.
func (c *CQ) Notify(f func(Completion, error)) error {
	return c.do("notify of CQ", func() error {
		if f == nil {
			return hinted(fmt.Errorf("%w: the handler is nil", descriptors.ErrInvalidParameter), "")
		}
		return c.notices.add(c.n, f, c.await)
	})
}

// do is NIC.do for a CQ that is not destroyed.
func (c *CQ) do(op string, f func() error) error { return c.leaving.do(c.n.background, c.n, op, f) }

func (c *CQ) await(w *waiter) (done Completion, err error) {
	for err = c.take(&done, false); err == descriptors.ErrNotDone; err = c.take(&done, false) {
		if err := w.pause(c, c.vec, nil); err != nil {
			return done, c.n.error("wait for CQ", err)
		}
	}
	return done, err
}

// FD is a file descriptor for epoll and its like, the same each time. It becomes readable
// when there is a completion, or the NIC has failed, after each call of Arm. A program that finds it
// readable reads its 8 bytes, calls Done until that says ErrNotDone, and then Arm again:
// what comes in between is not missed. It belongs to the CQ and is closed with it.
func (c *CQ) FD() (int, error) {
	fd := -1
	err := c.do("CQ's file descriptor", func() (err error) {
		c.change.Lock()
		defer c.change.Unlock()
		if c.ready == nil {
			if c.ready, err = vfio.NewEventfd(); err != nil {
				return err
			}
		}
		fd = c.ready.FD()
		return nil
	})
	return fd, err
}

// Arm makes FD readable, once, as soon as there is a completion, at once if there is
// one; arming what is armed does nothing. A goroutine waits for that, and steps a NIC that needs it. Arm fails with
// ErrInvalidState before the first call of FD.
func (c *CQ) Arm() error {
	return c.do("arm CQ", func() error {
		c.change.Lock()
		defer c.change.Unlock()
		if c.ready == nil {
			return hinted(descriptors.ErrInvalidState, "call FD first")
		}
		if c.armed.Swap(true) {
			return nil
		}
		ready := c.ready
		return c.arms.add(c.n, func(struct{}, error) {
			c.armed.Store(false)
			_ = ready.Signal() // fails once it is closed: then it is not looked at
		}, c.awaitAny)
	})
}

// awaitAny waits until there is something to take.
func (c *CQ) awaitAny(w *waiter) (struct{}, error) {
	for {
		if any, err := c.any(); any || err != nil {
			return struct{}{}, err
		}
		if err := w.pause(c, c.vec, nil); err != nil {
			return struct{}{}, c.n.error("wait for CQ", err)
		}
	}
}

// any reports whether Done would find something.
func (c *CQ) any() (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false, c.closedAs
	}
	c.sort(nil)
	return len(c.sorted) > 0, nil
}

// endNotices forgets who waits for a notice, and closes the descriptor of FD. change is
// held, or the CQ is not in use any more.
func (c *CQ) endNotices() error {
	c.notices.end()
	c.arms.end()
	if c.ready == nil {
		return nil
	}
	return c.ready.Close()
}

// Wait waits for a completion until ctx ends, and takes it as Done does.
func (c *CQ) Wait(ctx context.Context) (Completion, error) {
	if ctx == nil {
		return Completion{}, c.n.noContext("wait for CQ")
	}
	return c.await(&waiter{n: c.n, ctx: ctx, done: c.n.done})
}

// Done takes the oldest completion whose descriptor has not been taken back yet. It
// does not block: ErrNotDone, bare, stands for none. It fails
// with ErrClosed, ErrCQOverrun, ErrProtocol if the device wrote an
// impossible entry, or what is wrong with the device.
func (c *CQ) Done() (done Completion, err error) {
	err = c.take(&done, true)
	return done, err
}

// Ready is Done that does not run a NIC which works in its callers' calls.
func (c *CQ) Ready() (done Completion, err error) {
	err = c.take(&done, false)
	return done, err
}
