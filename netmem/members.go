package netmem

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/placement"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// reconcileEvery is the time between two comparisons of the copies of all pages, besides when a client is opened
// and when it meets two that differ: a writer may have been killed between them.
const reconcileEvery = time.Minute

// watch asks the store for the configuration, until ctx ends.
func (p *pool) watch(ctx context.Context) {
	for {
		_ = p.ask(ctx, nil) // calls that need it say so
		select {
		case <-ctx.Done():
			return
		case <-time.After(heartbeat):
		case <-p.stale:
		}
	}
}

// tend looks after the servers of a pool with copies until ctx ends: it tells them the configuration, goes on without
// those that are away, lets in those that come back, and makes copies equal.
func (p *pool) tend(ctx context.Context) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	var compared time.Time
	var incomplete *view // a page of it is lost, so that a server which joins cannot be given all
	for {
		v := p.view.Load()
		p.tell(ctx, v)
		joins := v.Joins() && v != incomplete
		if next, needed := p.next(ctx, v); needed {
			p.swap(ctx, v, next)
		} else if p.settled(v) && (joins || p.differs.Swap(false) || time.Since(compared) > reconcileEvery) {
			whole, done := p.reconcile(ctx, v)
			switch {
			case !done:
				p.differs.Store(true)
			case joins && whole:
				p.swap(ctx, v, v.Joined())
			case joins:
				incomplete = v
			}
			if done {
				compared = time.Now()
			}
		}
		p.changes.tell()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.wake:
		}
	}
}

// tell has all servers of a configuration adopt it.
func (p *pool) tell(ctx context.Context, v *view) {
	for _, k := range p.links {
		s, l := v.Servers[k.number], v.line(k)
		if !s.Present() || l == nil || v.has(k) {
			continue
		}
		err := l.adopt(ctx, protocol.Record{Pool: v.Pool, Epoch: v.Epoch, Base: v.Base, Members: p.members}, s.Since, s.Joining)
		switch {
		case err == nil:
		case errors.Is(err, ErrEpoch):
			p.hurry()
		case ctx.Err() == nil:
			k.down(l, err)
		}
	}
}

// next is the configuration that the pool needs because of what a server does; false if it needs none.
func (p *pool) next(ctx context.Context, v *view) (placement.Configuration, bool) {
	outside := v.Outside()
	// Each line is loaded once: a server that goes while others are asked, below, is not among those that outside counts.
	lines := make([]*line, len(p.links))
	for i, k := range p.links {
		s, l := v.Servers[k.number], k.now.Load()
		if lines[i] = l; s.Member() && (l == nil || l.incarnation != s.Incarnation) {
			outside++
		}
	}
	if ctx.Err() != nil {
		return placement.Configuration{}, false // the client is being closed, and ends its connections itself
	}
	room := outside < p.options.Copies // each page is left a member that answers
	for i, k := range p.links {
		s, l := v.Servers[k.number], lines[i]
		switch {
		case l == nil && s.Present() && (room || s.Joining) && time.Since(k.awaySince()) >= p.options.Timeout:
			return v.With(k.number, 0), true
		case l == nil || l.incarnation == s.Incarnation:
		case !s.Present() && time.Since(v.opened) < p.options.Timeout: // another client may be the one that does not reach it
		default:
			// It has restarted, or comes back. That it answers now says that the process of the configuration is gone,
			// and not this one.
			if _, err := l.describe(ctx, &protocol.Request{Operation: protocol.Describe}); err != nil {
				if ctx.Err() == nil {
					k.down(l, err)
				}
				continue
			}
			return v.With(k.number, l.incarnation), true
		}
	}
	return placement.Configuration{}, false
}
