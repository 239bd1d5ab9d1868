package netmem

import (
	"context"
	"sync"
	"time"
)

// patience is a context that ends after a time, or with its parent. Unlike those of
// package context it is used again, so that a deadline for each call allocates nothing.
type patience struct {
	parent   context.Context
	deadline time.Time
	timer    *time.Timer
	done     chan struct{}

	mu    sync.Mutex
	err   error
	until func() bool // ends the watch over the parent; nil if that never ends
}

var patiences sync.Pool

// patient returns a context with d to go.
func patient(parent context.Context, d time.Duration) *patience {
	p, _ := patiences.Get().(*patience)
	if p == nil {
		p = &patience{done: make(chan struct{})}
		p.timer = time.AfterFunc(time.Hour, func() { p.end(context.DeadlineExceeded) })
		p.timer.Stop()
	}
	p.parent, p.deadline = parent, time.Now().Add(d)
	p.timer.Reset(d)
	if parent.Done() != nil {
		p.until = context.AfterFunc(parent, func() { p.end(parent.Err()) })
	}
	return p
}

// end ends the context, with the first reason that there is.
func (p *patience) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
		close(p.done)
	}
}

// release gives the context back. Whoever was given it does not look at it any more.
func (p *patience) release() {
	again := p.timer.Stop()
	if p.until != nil {
		again = p.until() && again
		p.until = nil
	}
	if again { // else it has ended, or is about to
		p.parent = nil
		patiences.Put(p)
	}
}

func (p *patience) Deadline() (time.Time, bool) {
	if d, ok := p.parent.Deadline(); ok && d.Before(p.deadline) {
		return d, true
	}
	return p.deadline, true
}

func (p *patience) Done() <-chan struct{} { return p.done }

func (p *patience) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *patience) Value(key any) any { return p.parent.Value(key) }
