package netmem

import (
	"context"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// All functions here are called with the client's lock held, which some let go meanwhile.

// acquire returns the frame of a page that is there, and fetches it if need be.
func (c *Client) acquire(ctx context.Context, page uint64) (*frame, error) {
	if c.ahead.Window > 0 {
		c.readAhead(page, c.find(own, page) == nil)
	}
	for missed, since := false, c.drops; ; {
		if err := c.usable(ctx); err != nil {
			return nil, err
		}
		f := c.find(own, page)
		switch {
		case f == nil:
			missed = true
			f, err := c.take(ctx)
			if err != nil {
				return nil, err
			}
			if c.find(own, page) != nil { // another call was faster
				c.discard(f)
				continue
			}
			c.stats.Misses++
			c.enter(f, own, page, loading)
			start := time.Now()
			near, err := c.fetch(ctx, f)
			if err != nil {
				return nil, late(ctx, err)
			}
			record(c.latency, time.Since(start))
			if near > 0 {
				record(c.near, near)
			}
		case f.since < since && f.settled():
			c.remove(f) // Drop has met it on its way, or in use
		case f.since < since && !f.dirty, f.state == loading:
			c.changed.Wait()
		default:
			if !missed {
				c.stats.Hits++
			}
			if f.ahead {
				f.ahead = false
				c.stats.AheadUsed++
			}
			f.used, f.last = true, c.tick
			return f, nil
		}
	}
}

// acquireForWriting returns the frame of a page that may be changed. One that is about to be
// written whole is not fetched: its state is loading until it has been.
func (c *Client) acquireForWriting(ctx context.Context, page uint64, whole bool) (*frame, error) {
	for {
		if f := c.find(own, page); f == nil && whole && !c.closed {
			f, err := c.take(ctx)
			if err != nil {
				return nil, err
			}
			if c.find(own, page) != nil {
				c.discard(f)
				continue
			}
			c.enter(f, own, page, loading)
			f.change.blind = true
			return f, nil
		}
		f, err := c.acquire(ctx, page)
		if err != nil {
			return nil, err
		}
		if f.state == valid {
			return f, nil
		}
		c.changed.Wait() // until it has been written back
	}
}

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
		c.changed.Wait()
	}
}

// fetch fetches a frame's page into it, without the lock, and frees the frame if that fails. With Cooperation the
// page may come from another client: then near is the time that took.
func (c *Client) fetch(ctx context.Context, f *frame) (near time.Duration, err error) {
	var s protocol.Stamp
	page, into := f.change.page, c.frameOf(f)
	c.mu.Unlock()
	if c.cooperation == nil {
		var r protocol.Reply
		r, err = c.pool.read(ctx, page, into, nil)
		s = r.Stamp
	} else {
		s, near, err = c.cooperation.fetch(ctx, page, into, func(s protocol.Stamp, into []byte) bool {
			has, _ := c.copyOut(c.pool.view.Load().Pool, page, s, into)
			return has
		})
	}
	c.mu.Lock()
	if near > 0 {
		c.stats.FromHosts++
	}
	if err != nil {
		c.remove(f)
	} else {
		f.change.base, f.change.writer, f.state = Version(s.Version), s.Client, valid
	}
	c.changed.Broadcast()
	return near, err
}

// readAhead is told of a page that is read, and has workers fetch those that follow.
func (c *Client) readAhead(page uint64, missed bool) {
	a := c.ahead.Seen(page, missed)
	for p := a.First; p < min(a.End, c.pool.pages); p++ {
		if c.find(own, p) == nil && !c.ask(job{what: fetchAhead, page: p}) {
			return // they have enough to do
		}
	}
}

// fetchAhead fetches a page that no call waits for yet, if there is a place for it.
func (c *Client) fetchAhead(page uint64) {
	if c.find(own, page) != nil || c.closed {
		return
	}
	f := c.idle(c.leave)
	if f == nil {
		return
	}
	c.enter(f, own, page, loading)
	if _, err := c.fetch(context.Background(), f); err == nil { // who needs the page meets an error himself
		f.ahead, f.used = true, true // it shall be there when its reader comes
		c.stats.Ahead++
	}
}
