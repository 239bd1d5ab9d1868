package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/buserror"
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
