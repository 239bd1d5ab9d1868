package netmem

import (
	"context"
	"errors"
)

// All functions here but Sync are called with the client's lock held, which most let go
// meanwhile.

// take takes a frame out of the cache for another page. If all are dirty it waits until
// one has been written back.
func (c *Client) take(ctx context.Context) (*frame, error) {
	for {
		if err := c.usable(ctx); err != nil {
			return nil, err
		}
		if f := c.idle(c.leave); f != nil {
			return f, nil
		}
		if c.leaving == 0 {
			if f := c.anyDirty(); f != nil {
				if err := c.writeBack(ctx, f); err != nil {
					return nil, err
				}
				continue
			}
		}
		c.wait()
	}
}

// anyDirty is a frame that can be written back now, nil if there is none.
func (c *Client) anyDirty() *frame {
	for range c.frames {
		f := &c.frames[c.hand]
		c.hand = (c.hand + 1) % len(c.frames)
		if f.state == valid && f.dirty && !f.queued && f.pins == 0 {
			return f
		}
	}
	return nil
}

// leave has a worker write a frame back and free it. It reports whether one will.
func (c *Client) leave(f *frame) bool {
	if f.err != nil { // it has failed before: the call that needs the place shall hear of it
		return false
	}
	f.queued = c.ask(job{what: writeAndFree, frame: f})
	return f.queued
}

// writeBack writes a frame to the servers. If another client was faster the frame is freed.
func (c *Client) writeBack(ctx context.Context, f *frame) error {
	f.state = writing
	f.change.from = c.frameOf(f)
	c.mu.Unlock()
	err := late(ctx, c.pool.write(ctx, &f.change))
	c.mu.Lock()
	f.state, f.err = valid, err
	switch {
	case err == nil:
		f.dirty = false
		c.stats.WrittenBack++
	case errors.Is(err, ErrConflict):
		for f.pins > 0 {
			c.wait()
		}
		c.remove(f)
		c.stats.Conflicts++
	}
	c.tell()
	return err
}

// Sync writes back all pages that have been written before. It returns the first error
// that it meets, or that was met with pages that are not in the cache any more: those
// that another client has written first.
func (c *Client) Sync() error {
	ctx, end := c.begin()
	defer end()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.usable(ctx); err != nil {
		return err
	}
	if err := c.queueDirty(ctx); err != nil {
		return err
	}
	var err error
	for i := range c.frames {
		f := &c.frames[i]
		for f.queued || f.state == writing {
			if ctx.Err() != nil {
				return late(ctx, ctx.Err())
			}
			c.wait()
		}
		if err == nil && f.dirty {
			err = f.err
		}
	}
	if c.failed != nil {
		err, c.failed = c.failed, nil
	}
	return err
}

// queueDirty gives the workers all frames that are to be written back.
func (c *Client) queueDirty(ctx context.Context) error {
	for i := range c.frames {
		f := &c.frames[i]
		if !f.dirty || f.queued {
			continue
		}
		f.queued = true
		c.asking++
		c.mu.Unlock()
		var err error
		select {
		case c.jobs <- job{what: write, frame: f}:
		case <-ctx.Done():
			err = late(ctx, ctx.Err())
		}
		c.mu.Lock()
		c.asking--
		if err != nil {
			f.queued = false
		}
		c.tell()
		if err != nil {
			return err
		}
	}
	return nil
}

// Drop forgets all pages that have not been written here: they are fetched again when they
// are needed, as other clients have written them.
func (c *Client) Drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.frames {
		if f := &c.frames[i]; f.state == valid && f.owner == 0 && !f.dirty && !f.queued && f.pins == 0 {
			c.remove(f)
		}
	}
	c.tell()
}
