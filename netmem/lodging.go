package netmem

import (
	"cmp"
	"context"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/via"
)

// stored returns the bytes of pages that are kept for others.
func (l *lodging) stored() uint64 {
	l.client.mu.Lock()
	defer l.client.mu.Unlock()
	return uint64(l.client.guests) * uint64(l.client.page)
}

// carryOut is session.carryOut for a request of another client.
func (l *lodging) carryOut(x *session, room int, request *protocol.Request, r *protocol.Reply, payload []byte) *loan {
	switch request.Operation {
	case protocol.Describe:
		x.describe()
	case protocol.Stat:
		x.stat()
	case protocol.Get:
		return l.get(x, room, request, r)
	case protocol.Put:
		l.put(request, r, payload)
	case protocol.Ages:
		l.client.mu.Lock()
		defer l.client.mu.Unlock()
		x.body(&l.summary)
	default:
		r.Result = protocol.BadOperation
	}
	return nil
}

// get gives a page to a client that asks for it, in a copy: no other call waits for that client.
func (l *lodging) get(x *session, room int, request *protocol.Request, r *protocol.Reply) *loan {
	c := l.client
	switch {
	case int(request.Length) != c.page || room < c.page:
		r.Result = protocol.BadLength
		return nil
	case request.Epoch == 0:
		r.Result = protocol.BadRequest
		return nil
	}
	to := x.borrow(r)
	if to == nil {
		return nil
	}
	has, left := c.copyOut(request.Epoch, request.Page, request.Stamp(), to.frame.Bytes())
	if !has {
		to.owner.returned(to.place)
		r.Result = protocol.NotHeld
		return nil
	}
	r.Stamp = request.Stamp()
	if left {
		r.Flags = protocol.Left
	}
	return to
}

// copyOut copies a version of a page out of the cache, if it has it. One that was kept for others leaves
// the cache.
func (c *Client) copyOut(pool, page uint64, s protocol.Stamp, into []byte) (has, left bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.find(pool, page)
	if f == nil && pool == c.pool.view.Load().Pool {
		f = c.find(own, page)
	}
	if f == nil || !f.is(s) {
		return false, false
	}
	f.pins++
	c.mu.Unlock()
	copy(into, c.bytes(f))
	c.mu.Lock()
	has = f.is(s) // or a writer has begun to change it
	c.unpin(f)
	if left = has && f.owner != 0 && f.state == valid && f.pins == 0; left {
		c.remove(f)
		c.changed.Broadcast()
	}
	return has, left
}

// is says that a frame holds a version of a page as the servers have it.
func (f *frame) is(s protocol.Stamp) bool {
	return (f.state == valid || f.state == writing) && !f.dirty && f.change.base == Version(s.Version) && f.change.writer == s.Client
}

// put keeps a page for others if there is a frame that has not been used for longer than the page.
func (l *lodging) put(request *protocol.Request, r *protocol.Reply, payload []byte) {
	c := l.client
	switch {
	case int(request.Length) != c.page || len(payload) != c.page:
		r.Result = protocol.BadLength
		return
	case request.Epoch == 0 || request.Next > 1<<32-1:
		r.Result = protocol.BadRequest
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := l.room(request.Epoch, request.Page, uint32(request.Next))
	if f == nil {
		r.Result = protocol.Full
		return
	}
	c.enter(f, request.Epoch, request.Page, loading)
	c.mu.Unlock()
	copy(c.bytes(f), payload)
	c.mu.Lock()
	f.change.base, f.change.writer = Version(request.Expected), request.Client
	f.last = c.tick - uint32(request.Next)
	f.state = valid
	c.changed.Broadcast()
	l.server.counters.writes.Add(1)
	l.server.counters.in.Add(uint64(c.page))
}

// mostLooks is at how many frames put looks for one that is old enough.
const mostLooks = 64

// room is a frame for a page of such an age, nil if there is none. An older version of the page goes.
func (l *lodging) room(owner, page uint64, age uint32) *frame {
	c := l.client
	if c.closed || l.most == 0 {
		return nil
	}
	if f := c.find(owner, page); f != nil {
		if f.state != valid || f.pins > 0 || f.queued {
			return nil
		}
		c.remove(f)
	}
	full := c.guests >= l.most // then only a guest may go
	if !full && len(c.unused) > c.reserve {
		return c.takeUnused()
	}
	for range min(mostLooks, len(c.frames)) {
		f := &c.frames[c.lookout]
		c.lookout = (c.lookout + 1) % len(c.frames)
		if !f.settled() || full && f.owner == 0 || c.tick-f.last <= age {
			continue
		}
		c.remove(f)
		return c.takeUnused()
	}
	return nil
}

// summary counts the frames that others may replace by their ages, with at most so many guests.
func (c *Client) summary(guests int) protocol.Summary {
	s := protocol.Summary{Evicted: c.evicted}
	room := uint32(max(0, guests-c.guests)) // for more guests
	free := min(uint32(max(0, len(c.unused)-c.reserve)), room)
	s.Frames[protocol.AgeBuckets-1] = free
	room -= free
	var own [protocol.AgeBuckets]uint32
	for i := range c.frames {
		switch f := &c.frames[i]; {
		case f.state != valid || f.dirty:
		case f.owner != 0:
			s.Frames[ageBucket(c.tick-f.last)]++
		default:
			own[ageBucket(c.tick-f.last)]++
		}
	}
	for b := protocol.AgeBuckets - 1; b >= 0; b-- { // the oldest of the client's own
		n := min(own[b], room)
		s.Frames[b] += n
		room -= n
	}
	return s
}

// cooperate begins to use other clients' memory, and to lend them this client's.
func (c *Client) cooperate(ctx context.Context, o *Cooperation) (err error) {
	c.reserve = max(2, min(mostLeaving/2, len(c.frames)/8))
	c.mostLeaving = c.reserve
	var self *via.Address
	if o.Name != "" {
		l := &lodging{client: c, most: int(cmp.Or(o.Lend, c.options.Cache) / int64(c.page))}
		so := ServerOptions{Name: o.Name, Page: c.page, Size: int64(len(c.frames)) * int64(c.page), Span: int64(c.page)}
		if l.server, err = newServer(ctx, c.pool.fabric, so, l); err != nil {
			return err
		}
		c.lodging, self = l, &via.Address{Discriminator: o.Name}
		l.summary = c.summary(l.most)
		if c.pool.nic != nil {
			if err := l.server.listen(c.pool.nic); err != nil {
				return asError("lend a part of the cache", err)
			}
			self = new(l.server.Address())
		}
	}
	c.cooperation, err = newCooperation(c.pool, o, self, func() uint64 {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.evicted
	})
	if err == nil {
		c.pool.running.Go(func() { c.ticks(c.pool.ctx) })
	}
	return err
}

// ticks counts the time by which pages age, until ctx ends.
func (c *Client) ticks(ctx context.Context) {
	tick := time.NewTicker(tickTime)
	defer tick.Stop()
	for {
		c.mu.Lock()
		if c.tick++; c.lodging != nil && (c.tick%4 == 0 || c.tick == 1) {
			c.lodging.summary = c.summary(c.lodging.most)
		}
		c.mu.Unlock()
		c.cooperation.tickOnce()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lodge sends the page of a frame that is about to be freed to a host, if it is worth it. The page does
// not change meanwhile.
func (c *Client) lodge(f *frame) {
	own := c.pool.view.Load().Pool
	if c.cooperation == nil || f.state != valid || f.dirty || f.pins > 0 || f.owner != 0 && f.owner != own {
		return
	}
	f.state, f.used = writing, false
	c.evicted++
	page, age, frame := f.change.page, c.tick-f.last, c.frameOf(f)
	s := protocol.Stamp{Version: uint64(f.change.base), Client: f.change.writer}
	c.mu.Unlock()
	c.cooperation.evict(context.Background(), page, s, age, frame)
	c.mu.Lock()
	f.state = valid
}
