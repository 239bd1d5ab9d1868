package netmem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

// SetDeadline sets when ReadAt, WriteAt, Sync and Close fail with os.ErrDeadlineExceeded. Calls
// that have begun before keep the deadline that they had. The zero time is never, and then only
// Options.Timeout limits calls. A fetch or write that the deadline cuts short ends the connection
// with its server, which is made again. Unless it was Close that failed, what was to be written
// back stays in the cache.
func (c *Client) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return closedError("set the deadline")
	}
	if t.IsZero() {
		c.deadline.Store(nil)
	} else {
		c.deadline.Store(&t)
	}
	return nil
}

// begin returns the context of a call, and a function that ends it. It allocates nothing where no
// deadline is set.
func (c *Client) begin() (context.Context, func()) {
	t := c.deadline.Load()
	if t == nil {
		return context.Background(), func() {}
	}
	ctx, cancel := context.WithDeadline(context.Background(), *t)
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})
	return ctx, func() { stop(); cancel() }
}

// usable says why a call does not go on: the client is closed, or the call's deadline has passed.
// It is asked before each wait, with the lock held.
func (c *Client) usable(ctx context.Context) error {
	if c.closed {
		return closedError("use")
	}
	if err := ctx.Err(); err != nil {
		return late(ctx, err)
	}
	return nil
}

// late adds to an error that the deadline of its call has passed, if it has.
func late(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, ErrConflict) {
		return err
	}
	return &Error{Op: "wait until the deadline", Code: via.ErrTimeout, Err: fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)}
}

// callContext is a context that ends after a time, or with its parent. Unlike those of
// package context it is used again, so that a deadline for each call allocates nothing; and
// it has no timer until a caller sleeps: one that polls looks at the clock now and then.
type callContext struct {
	parent   context.Context
	deadline time.Time
	timer    *time.Timer
	done     chan struct{}
	looks    atomic.Uint32 // how often it was asked whether it has ended

	mu    sync.Mutex
	armed bool // the timer is
	ended atomic.Bool
	err   error
	until func() bool // ends the watch over the parent; nil if that never ends
	home  *sync.Pool  // of those that are used again

	request [protocol.RequestSize]byte // of the call
}

// looksPerClock is the number of questions whether the time is over to each look at the
// clock, which costs as much as a few of these.
const looksPerClock = 32

// newCallContext returns a context that ends at a time, from home if that has one.
func newCallContext(parent context.Context, deadline time.Time, home *sync.Pool) *callContext {
	p, _ := home.Get().(*callContext)
	if p == nil {
		p = &callContext{done: make(chan struct{}), home: home}
		p.timer = time.AfterFunc(time.Hour, func() { p.end(context.DeadlineExceeded) })
		p.timer.Stop()
	}
	p.parent, p.deadline = parent, deadline
	if parent.Done() != nil {
		p.until = context.AfterFunc(parent, func() { p.end(parent.Err()) })
	}
	return p
}

// end ends the context, with the first reason that there is.
func (p *callContext) end(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.err = err
		p.ended.Store(true)
		close(p.done)
	}
}

// release gives the context back. The call that had it does not look at it any more.
func (p *callContext) release() {
	rearm := true
	if p.until != nil {
		rearm = p.until()
		p.until = nil
	}
	p.mu.Lock()
	rearm = (!p.armed || p.timer.Stop()) && p.err == nil && rearm
	p.armed = false
	p.mu.Unlock()
	if rearm { // else it has ended, or is about to
		p.parent = nil
		p.home.Put(p)
	}
}

func (p *callContext) Deadline() (time.Time, bool) {
	if d, ok := p.parent.Deadline(); ok && d.Before(p.deadline) {
		return d, true
	}
	return p.deadline, true
}

func (p *callContext) Done() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.armed {
		p.armed = true
		p.timer.Reset(time.Until(p.deadline))
	}
	return p.done
}

func (p *callContext) Err() error {
	if p.looks.Add(1)%looksPerClock == 0 && time.Now().After(p.deadline) {
		p.end(context.DeadlineExceeded)
	}
	if !p.ended.Load() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *callContext) Value(key any) any { return p.parent.Value(key) }
