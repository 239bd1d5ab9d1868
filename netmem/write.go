package netmem

import (
	"context"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/internal/netmem/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// change is a page that is to be written.
type change struct {
	page uint64
	from ring.Frame
	// base is the version that was read, on which the change is built. Of one that is
	// built on nothing, blind is set.
	base  Version
	blind bool
	// tried is the highest version that earlier attempts may have given the page, which
	// failed without an answer. With own they are not known: whatever this client has
	// written since base is such an attempt.
	tried Version
	own   bool
}

// write writes a page to all its servers that can be reached. It succeeds when one that
// has the page has taken it, and those that are away are owed it. c.base becomes the
// page's new version. It waits for servers that are connecting again.
func (p *pool) write(ctx context.Context, c *change) error {
	a := attempts{start: time.Now()}
	for {
		err := p.writeTo(ctx, c)
		if err == nil {
			return nil
		}
		if err := p.again(ctx, c.page, &a, err); err != nil {
			return err
		}
	}
}

// writeTo is one attempt at that.
func (p *pool) writeTo(ctx context.Context, c *change) error {
	var room [maxCopies]target
	list, last := p.targets(c.page, room[:0])
	if len(list) == 0 {
		return unavailable("write", c.page, last)
	}
	owed := p.oweOthers(c.page, list)
	for i, t := range list {
		r, err := p.decide(ctx, t, c)
		switch {
		case err != nil:
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			err = t.link.down(t.line, err)
			last = &Error{Op: "write", Page: int64(c.page), Server: t.link.name, Err: err}
			if ctx.Err() != nil {
				p.forgive(c.page, owed)
				return last
			}
			p.counters.failovers.Add(1)
		case r.Result == protocol.VersionConflict:
			p.forgive(c.page, owed)
			return &Error{Op: "write", Page: int64(c.page), Server: t.link.name, Err: &ConflictError{c.page, c.base, Version(r.Version)}}
		case r.Result != protocol.OK:
			p.forgive(c.page, owed)
			return &Error{Op: "write", Page: int64(c.page), Server: t.link.name, Err: refusal(r.Result)}
		default:
			c.base, c.blind, c.tried = Version(r.Version), false, 0
			p.counters.writes.Add(1)
			return p.spread(ctx, c, t, list[i+1:])
		}
	}
	p.forgive(c.page, owed)
	return unavailable("write", c.page, last)
}

// decide writes to the server that decides between writers: the first that has the page.
func (p *pool) decide(ctx context.Context, t target, c *change) (protocol.Reply, error) {
	for {
		next := max(c.base, c.tried) + 1
		condition := protocol.IfExpected
		switch {
		case c.blind:
			condition, next = protocol.Always, c.tried+1
		case !t.whole: // it has lost what was there
			condition = protocol.IfOlder
		}
		c.tried = max(c.tried, next)
		r, err := t.line.write(ctx, c.page, c.from, condition, c.base, next, p.client)
		if err == nil && r.Result == protocol.VersionConflict && r.Client == p.client && c.base < Version(r.Version) && (c.own || Version(r.Version) < next) {
			c.base = Version(r.Version) // an attempt of ours was carried out after all
			continue
		}
		return r, err
	}
}

// spread writes what one server has decided to the others. Those that do not get it are
// owed it.
func (p *pool) spread(ctx context.Context, c *change, decided target, rest []target) error {
	var room [maxCopies]target
	have := append(room[:0], decided)
	decided.link.paid(c.page)
	var failed error
	for _, t := range rest {
		r, err := t.line.write(ctx, c.page, c.from, protocol.IfOlder, 0, c.base, p.client)
		switch {
		case err != nil:
			t.link.down(t.line, err)
		case r.Result == protocol.OK, r.Result == protocol.VersionConflict: // it has a newer one
			t.link.paid(c.page)
			have = append(have, t)
		default:
			failed = &Error{Op: "write a copy of", Page: int64(c.page), Server: t.link.name, Err: refusal(r.Result)}
		}
	}
	p.oweOthers(c.page, have)
	return failed
}

// oweOthers notes that the servers of a page which are not in list miss a write to it, and
// returns a bit for each of which that is new. It is called before the write, so that
// nobody reads there what was, and after it, in case one of them has come back and got the
// page of before meanwhile.
func (p *pool) oweOthers(page uint64, list []target) (fresh uint) {
	if len(list) == p.placement.Copies() {
		return 0
	}
	var room [maxCopies]int
	at := room[:p.placement.Copies()]
	p.placement.Of(page, at)
	for i, n := range at {
		k := p.links[n]
		if slices.ContainsFunc(list, func(t target) bool { return t.link == k }) {
			continue
		}
		if k.owe(page) {
			fresh |= 1 << i
		}
		if k.now.Load() != nil {
			k.look()
		}
	}
	return fresh
}

// forgive takes back what oweOthers has noted for a write that nobody has taken.
func (p *pool) forgive(page uint64, fresh uint) {
	var room [maxCopies]int
	at := room[:p.placement.Copies()]
	p.placement.Of(page, at)
	for i, n := range at {
		if fresh>>i&1 != 0 {
			p.links[n].paid(page)
		}
	}
}
