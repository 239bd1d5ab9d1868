package ring

import (
	"context"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// Start is Call that does not wait: it fails with ErrFull at once, bare, while the ring is
// full or MaxCalls calls are under way. done is called once, with what Call returns, by whoever
// polls: a goroutine that is in Call, or one of the Caller's own. It must not wait, nor use
// Call; it may use Start. The call's time is that of SetTimeout.
func (c *Caller) Start(request []byte, send, into Frame, done func(Reply, error)) error {
	if done == nil {
		return c.r.refuse("start call", via.ErrInvalidParameter, "", "the function is nil")
	}
	c.startBackground()
	if _, _, err := c.begin(request, send, into, done); err != nil {
		return err
	}
	c.wake.Set()
	return nil
}

// startBackground starts the goroutine that polls while nobody else does, once.
func (c *Caller) startBackground() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started && !c.closed.Load() {
		c.started = true
		c.running.Go(c.run)
	}
}

// run takes replies to calls of Start, and ends those whose time is over.
func (c *Caller) run() {
	for c.background.Err() == nil {
		if c.starts.Load() == 0 {
			select {
			case <-c.wake.C():
				c.wake.Clear()
			case <-c.background.Done():
				return
			}
			continue
		}
		next := c.expire(time.Now())
		if c.poll(nil) > 0 {
			continue
		}
		if !next.IsZero() {
			c.timer.Reset(time.Until(next))
		}
		if err := c.r.wait(c.background, c.wake); err != nil && c.background.Err() == nil {
			c.fail(err)
		}
	}
}

// expire ends calls of Start whose time is over, and returns when the next one's is.
func (c *Caller) expire(now time.Time) (next time.Time) {
	for i := range c.calls {
		k := &c.calls[i]
		word := k.word.Load()
		// If the call is another one by now, withdraw finds another tag.
		deadline := k.deadline.Load()
		if word>>stateShift != active || deadline == 0 {
			continue
		}
		at := time.Unix(0, deadline)
		switch {
		case !now.Before(at):
			c.withdraw(k, uint32(word), context.DeadlineExceeded)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return next
}
