package netmem

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

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
	return late(ctx, ctx.Err())
}

// late adds to an error that the deadline of its call has passed, if it has.
func late(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.Is(err, ErrConflict) {
		return err
	}
	return &Error{Op: "wait until the deadline", Code: via.ErrTimeout, Err: fmt.Errorf("%w: %w", os.ErrDeadlineExceeded, err)}
}
