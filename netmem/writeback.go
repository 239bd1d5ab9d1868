package netmem

import (
	"context"
	"errors"
)

// All functions here but Sync are called with the client's lock held, which most let go
// meanwhile.

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

// leave makes a worker write a frame back and free it. It reports whether one will.
func (c *Client) leave(f *frame) bool {
	if f.err != nil { // it has failed before: the call that needs the place shall hear of it
		return false
	}
	f.queued = c.ask(job{what: writeAndFree, frame: f})
	return f.queued
}

// writeBack writes a frame to the servers. If another client was faster the frame is freed.
func (c *Client) writeBack(ctx context.Context, f *frame) error {
	f.state, f.since = writing, c.drops
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
			c.changed.Wait()
		}
		c.remove(f)
		c.stats.Conflicts++
	}
	c.changed.Broadcast()
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
			c.changed.Wait()
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
		c.changed.Broadcast()
		if err != nil {
			return err
		}
	}
	return nil
}

// Drop forgets all pages that have not been written here: they are fetched again when they
// are needed, as other clients have written them. Calls that begin after Drop also meet nothing that was
// on its way then, or in use by another call.
func (c *Client) Drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drops++
	for i := range c.frames {
		if f := &c.frames[i]; f.owner == own && f.settled() {
			c.remove(f)
		}
	}
	c.changed.Broadcast()
}

// ask gives a job to the workers, unless they have enough to do.
func (c *Client) ask(j job) bool {
	if c.closed { // the channel too, perhaps
		return false
	}
	select {
	case c.jobs <- j:
		return true
	default:
		return false
	}
}

// work does jobs until there are no more.
func (c *Client) work() {
	for j := range c.jobs {
		c.mu.Lock()
		switch j.what {
		case fetchAhead:
			c.fetchAhead(j.page)
		case write:
			c.writeQueued(j.frame)
		case writeAndFree:
			c.writeQueued(j.frame)
			c.lodge(j.frame)
			c.leaving--
			if f := j.frame; f.settled() {
				c.remove(f)
			}
			c.changed.Broadcast()
		}
		c.mu.Unlock()
	}
}

// writeQueued writes a frame back that was queued for it. No call waits for the outcome:
// an error with which a page has left the cache is kept for Sync.
func (c *Client) writeQueued(f *frame) {
	for f.pins > 0 || f.state == writing || f.state == loading {
		c.changed.Wait()
	}
	if f.state == valid && f.dirty {
		page := f.change.page
		if err := c.writeBack(context.Background(), f); err != nil && c.find(own, page) != f && c.failed == nil {
			c.failed = err
		}
	}
	f.queued = false
	c.changed.Broadcast()
}

func (c *Client) quiet() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.frames {
		for f := &c.frames[i]; f.pins > 0 || f.state == loading || f.state == writing; {
			c.changed.Wait()
		}
	}
}
