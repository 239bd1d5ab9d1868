package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/buserror"
	"github.com/trapeze-nic/trapeze/vfio"
)

// notices are handlers that wait for completions of one queue, each for one. A
// goroutine waits for them, which lives as long as there are any. No lock of the data
// path is held while a handler runs.
type notices[T any] struct {
	mu       sync.Mutex
	handlers []func(T, error)
	waiting  bool
	canceled bool
	ctx      context.Context // of the goroutine; ends with cancel
	cancel   context.CancelFunc
}

// add has f called for one more of what next waits for. It fails with ErrClosed once
// end was called.
func (s *notices[T]) add(n *NIC, f func(T, error), next func(*waiter) (T, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.canceled {
		return descriptors.ErrClosed
	}
	s.handlers = append(s.handlers, f)
	if s.ctx == nil {
		s.ctx, s.cancel = context.WithCancel(n.background)
	}
	if !s.waiting {
		s.waiting = true
		go s.wait(n, next)
	}
	return nil
}

func (s *notices[T]) wait(n *NIC, next func(*waiter) (T, error)) {
	for s.wanted() {
		var x T
		var err error
		gone := buserror.Catch(func() { x, err = next(&waiter{n: n, ctx: s.ctx, done: n.done}) })
		if gone != nil { // memory with a descriptor that the program has unmapped
			err = n.error("wait for a notice", fmt.Errorf("%w: %w", descriptors.ErrInvalidParameter, gone))
		}
		if errors.Is(err, descriptors.ErrClosed) || s.ctx.Err() != nil && errors.Is(err, s.ctx.Err()) {
			s.end()
			continue
		}
		s.mu.Lock()
		f := s.handlers[0]
		s.handlers = s.handlers[1:]
		s.mu.Unlock()
		f(x, err)
	}
}

// wanted reports whether a call still waits.
func (s *notices[T]) wanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = len(s.handlers) > 0 && !s.canceled
	return s.waiting
}

// end forgets all handlers, for good. A call that has begun goes on.
func (s *notices[T]) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.canceled = true
	if s.cancel != nil {
		s.cancel()
	}
}

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
