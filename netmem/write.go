package netmem

import (
	"context"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// change is a page to be written, from a frame.
type change struct {
	page uint64
	from ring.Frame
	// base is the version that was read, on which the change is built. Of one that is
	// built on nothing, blind is set.
	base  Version
	blind bool
	// tried is the highest version that earlier attempts may have given the page. With own
	// they are not known: whatever this client has written since base is such an attempt.
	tried Version
	own   bool
	// open: an attempt of this call may have been carried out.
	open bool
	// writer is the number of this write, and earlier those of calls that have failed since base.
	writer  uint64
	earlier []uint64
}

// writerBits of the number of a write count the writes of its client; those above are the client's.
const writerBits = 24

// writer numbers a write, so that no two writes of other bytes have one stamp.
func (p *pool) writer() uint64 {
	return p.client&^(1<<writerBits-1) | p.counters.begun.Add(1)&(1<<writerBits-1)
}

// mine says whether a page was last written by an earlier attempt at the change.
func (p *pool) mine(c *change, writer uint64) bool {
	return slices.Contains(c.earlier, writer) || c.own && writer>>writerBits == p.client>>writerBits
}

// write writes a page to all its servers. It succeeds when all of the configuration have taken
// it; c.base becomes the page's new version. It waits for servers that are connecting again, and
// for the pool to go on without them.
func (p *pool) write(ctx context.Context, c *change) error {
	a := attempts{start: time.Now()}
	c.writer, c.open = p.writer(), false
	for {
		v := p.view.Load()
		err := p.writeAll(ctx, v, c)
		if err == nil {
			p.counters.writes.Add(1)
			c.earlier = nil
			return nil
		}
		if err := p.retry(ctx, v, c.page, &a, err); err != nil {
			c.earlier = append(c.earlier, c.writer)
			return err
		}
	}
}

func (p *pool) writeAll(ctx context.Context, v *view, c *change) error {
	var room [maxCopies]*link
	list, _, err := p.holders(ctx, v, "write", c.page, room[:0])
	if err != nil {
		return err
	}
	var lines [maxCopies]*line
	for i, k := range list {
		if lines[i] = v.line(k); lines[i] == nil {
			return unavailable("write", c.page, p.unreached(v, k))
		}
	}
	r, err := p.decide(ctx, v, lines[0], c)
	switch {
	case err != nil:
		return p.lost(ctx, "write", c.page, list[0], lines[0], err)
	case r.Result == protocol.VersionConflict:
		if !p.alone { // its writer may have died before the other copies had it
			p.differs.Store(true)
			p.attend()
		}
		return &Error{Op: onPage("write", c.page), Device: list[0].name(), Err: &ConflictError{c.page, c.base, Version(r.Version)}}
	case r.Result != protocol.OK:
		return p.refused("write", c.page, list[0], r.Result)
	}
	version := Version(r.Version)
	for i, k := range list[1:] {
		if err := p.follow(ctx, v, k, lines[i+1], c, version); err != nil {
			return err
		}
	}
	c.base, c.blind, c.tried, c.open = version, false, 0, false
	return nil
}

// decide writes to the server that decides between writers: the first member of the page.
//
// A change that is built on nothing gets the time as its version, which is larger than any that
// the page has. All attempts have the same version, so that one that arrives late, after the page
// was written again, is refused.
func (p *pool) decide(ctx context.Context, v *view, l *line, c *change) (protocol.Reply, error) {
	for {
		next := max(c.base, c.tried) + 1
		condition := protocol.IfExpected
		switch {
		case c.blind:
			condition = protocol.IfOlder
			if next = c.tried; !c.open {
				next = max(c.tried+1, Version(time.Now().UnixNano()), Version(p.newest.Load())+1)
			}
		case p.alone && l.blank(): // it has lost what was there
			condition = protocol.IfOlder
		}
		c.tried = max(c.tried, next)
		r, _, err := l.call(ctx, &protocol.Request{Epoch: v.Epoch, Operation: protocol.Write, Condition: condition, Length: uint32(c.from.Length),
			Page: c.page, Expected: uint64(c.base), Next: uint64(next), Client: c.writer}, c.from, ring.Frame{})
		c.open = c.open || err != nil || r.Result == protocol.OK
		switch {
		case err != nil || r.Result != protocol.VersionConflict:
		case r.Client == c.writer: // an attempt was carried out after all
			r.Result = protocol.OK
		case c.blind && !c.open: // another client's clock is ahead of this one's
			p.newest.Store(r.Version)
			continue
		case c.blind: // an attempt came before what is there, or to nothing
		case c.base < Version(r.Version) && p.mine(c, r.Client): // so was one with other bytes
			c.base = Version(r.Version)
			continue
		}
		return r, err
	}
}

// follow writes to another server what the first has decided.
func (p *pool) follow(ctx context.Context, v *view, k *link, l *line, c *change, version Version) error {
	r, err := l.writeOlder(ctx, v.Epoch, c.page, c.from, version, c.writer)
	switch {
	case err != nil:
		return p.lost(ctx, "write a copy of", c.page, k, l, err)
	case r.Result == protocol.OK:
		return nil
	case r.Result == protocol.VersionConflict && (Version(r.Version) > version || r.Client == c.writer):
		return nil // it has it already, or another write that the first has decided later
	case r.Result == protocol.VersionConflict:
		p.differs.Store(true)
		p.attend()
		return unavailable("write a copy of", c.page, &Error{Op: onPage("write", c.page), Device: k.name(), Err: ErrConflict})
	}
	return p.refused("write a copy of", c.page, k, r.Result)
}
