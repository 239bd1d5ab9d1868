package ring

import (
	"context"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// Start begins a call without waiting. While the ring is full, or 256 calls are under way, it
// fails with via.ErrQueueFull, bare. done is called once, with the results of Call, on the
// goroutine that polls: one in Call, or the Caller's own. It must not wait nor use Call; it may
// use Start. The call ends with ErrDeadline at the deadline, which must not be the zero time.
func (c *Caller) Start(request []byte, send, into Frame, deadline time.Time, done func(Reply, error)) error {
	if done == nil || deadline.IsZero() {
		return c.r.refuse("start call", via.ErrInvalidParameter, "", "the call needs a deadline and a function")
	}
	c.startBackground()
	if _, _, err := c.begin(request, send, into, deadline.UnixNano(), done); err != nil {
		return err
	}
	c.wake.Set()
	return nil
}

// startBackground starts the goroutine that polls for calls of Start, once.
func (c *Caller) startBackground() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.started && !c.closed.Load() {
		c.started = true
		c.running.Go(c.run)
	}
}

// run takes replies to calls of Start, and ends calls at their deadlines.
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
		if err := c.r.waited(c.r.d.Recv.Wait(c.background, c.wake)); err != nil && c.background.Err() == nil {
			c.fail(err)
		}
	}
}

// expire ends calls of Start whose deadline has passed, and returns the next deadline.
func (c *Caller) expire(now time.Time) (next time.Time) {
	for i := range c.calls {
		k := &c.calls[i]
		word := k.word.Load()
		// If a later call has taken this place by now, withdraw finds another tag.
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
