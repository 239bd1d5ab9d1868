package driver

import "sync/atomic"

// Signal ends a wait before what it waits for has come. One goroutine waits for it, any may
// set it.
type Signal struct {
	set atomic.Bool
	c   chan struct{}
}

// NewSignal returns a Signal that is not set.
func NewSignal() *Signal { return &Signal{c: make(chan struct{}, 1)} }

// Set ends the wait, or the next one if there is none.
func (s *Signal) Set() {
	s.set.Store(true)
	select {
	case s.c <- struct{}{}:
	default:
	}
}

// C has something to receive once the signal has been set; nil of a nil Signal. A call that
// receives from it outside a wait calls Clear.
func (s *Signal) C() <-chan struct{} {
	if s == nil {
		return nil
	}
	return s.c
}

// Clear forgets that the signal was set, and reports whether it was.
func (s *Signal) Clear() bool {
	if s == nil || !s.set.Load() {
		return false
	}
	s.set.Store(false)
	select {
	case <-s.c:
	default:
	}
	return true
}
