package netmem

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// reconcileEvery is the time between two comparisons of the copies of all pages, besides when a client is opened
// and when it meets two that differ: a writer may have been killed between them.
const reconcileEvery = time.Minute

// tend looks after the members of the pool until ctx ends: it gives servers the newest record,
// goes on without those that are away, and has those that come back join again.
func (p *pool) tend(ctx context.Context) {
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	compare := time.Now()
	for {
		p.tendOnce(ctx)
		if v := p.view.Load(); p.outside(v.Record) == 0 && !v.Moving() && p.told(v) && (time.Now().After(compare) || p.differs.Swap(false)) {
			if p.reconcile(ctx, v) {
				compare = time.Now().Add(reconcileEvery)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-p.wake:
		}
	}
}

func (p *pool) tendOnce(ctx context.Context) {
	for _, k := range p.links {
		if l := k.now.Load(); l != nil && l.record.Load().Pool == p.record().Pool {
			p.learn(*l.record.Load())
		}
	}
	v := p.view.Load()
	if v.forming() {
		p.form(ctx, v)
		return
	}
	for _, k := range p.links {
		if ctx.Err() != nil || p.view.Load() != v {
			return
		}
		if next, ok := p.next(v, k); ok {
			p.change(ctx, v, next)
			break
		}
	}
	if p.view.Load() != v {
		return
	}
	// A witness that has lost the record takes the next one only once all members have this one.
	for _, k := range p.links {
		l, s := k.now.Load(), v.State(k.number)
		switch {
		case l == nil || !v.in(k) || v.Named() && s == protocol.Joining && !v.newest(l.to):
		case l.record.Load().Epoch < v.Epoch && !(s == protocol.Member && v.resigned(k, l)):
			p.give(ctx, k, l, v.Record)
		case s == protocol.Joining && !v.Named() && p.told(v) && p.copyTo(ctx, v, k, l) && l.adopt(ctx, v.Record, k.number, protocol.Exactly) == nil:
			p.change(ctx, v, v.With(k.number, protocol.Member))
			return
		}
	}
	if v.Named() && p.view.Load() == v {
		p.relocate(ctx, v)
	}
	p.changes.tell()
}

// form has all servers of a new pool adopt its record, and then begins to use it. The client that
// has made the pool may have died meanwhile.
func (p *pool) form(ctx context.Context, v *view) {
	for _, k := range p.links {
		if l := k.now.Load(); v.in(k) && l != nil && l.blank() && p.unused(v, k, l) {
			p.give(ctx, k, l, v.Record)
		}
	}
	if p.told(v) {
		next := v.Record
		next.Epoch++
		p.change(ctx, v, next)
	}
}

// unused says that a server which is in no pool has lost nothing of this one: since it was connected
// all others have said that they are in none either, or have the pool's first record.
func (p *pool) unused(v *view, blank *link, since *line) bool {
	return !slices.ContainsFunc(p.links, func(k *link) bool {
		l := k.now.Load()
		return v.in(k) && k != blank && (l == nil || !l.blank() && (!v.has(k) || l.opened.Add(time.Duration(l.heard.Load())).Before(since.opened)))
	})
}

// next is the record that the pool needs because of what a server does; false if it needs none.
func (p *pool) next(v *view, k *link) (protocol.Record, bool) {
	l, s := k.now.Load(), v.State(k.number)
	room := p.outside(v.Record) < p.options.Copies-1 // each page is left a member
	dead := l == nil && time.Since(k.awaySince()) >= p.options.Timeout
	if v.Named() {
		// What is out comes back as another server. Without a witness only what has no pages goes.
		left := (dead || p.names.left(k)) && p.options.Witness != nil || l != nil && v.resigned(k, l)
		return v.With(k.number, protocol.Out), s == protocol.Member && left && room
	}
	switch {
	case s == protocol.Member && dead && room && p.options.Witness != nil:
		return v.With(k.number, protocol.Out), true
	case s == protocol.Member && l != nil && v.resigned(k, l) && room:
		return v.With(k.number, protocol.Joining), true
	case s == protocol.Joining && dead:
		return v.With(k.number, protocol.Out), true
	case s == protocol.Out && l != nil:
		return v.With(k.number, protocol.Joining), true
	}
	return protocol.Record{}, false
}

// change makes next the record of the pool in the place of v's, unless another client is faster.
func (p *pool) change(ctx context.Context, v *view, next protocol.Record) {
	within, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	if w := p.options.Witness; w != nil {
		now, err := w.Swap(within, p.nic, next, p.allHave(v))
		if err == nil && now.SamePool(next) {
			p.learn(now)
		}
		p.witnessErr.Store(&err)
		return
	}
	// The first member decides. It is asked for nothing else than to be connected, as no live
	// member is ever left out.
	i := slices.IndexFunc(p.inOrder(), func(k *link) bool {
		l := k.now.Load()
		return v.State(k.number) == protocol.Member && (l == nil || !l.blank())
	})
	if i < 0 {
		return
	}
	k := p.inOrder()[i]
	l := k.now.Load()
	if l == nil {
		return
	}
	p.give(within, k, l, next)
	if r := *l.record.Load(); r.Pool == next.Pool {
		p.learn(r)
	}
}

// allHave says that all members have the record, but for those that say that they are none any more.
// So a witness that has lost its own, or was never told, may be told the next one.
func (p *pool) allHave(v *view) bool {
	for _, k := range p.links {
		l := k.now.Load()
		if v.State(k.number) == protocol.Member && !v.has(k) && (l == nil || !v.resigned(k, l)) {
			return false
		}
	}
	return true
}

// inOrder is the links by their numbers.
func (p *pool) inOrder() []*link {
	list := make([]*link, len(p.links))
	for _, k := range p.links {
		list[k.number] = k
	}
	return list
}

// give has a server adopt a record.
func (p *pool) give(ctx context.Context, k *link, l *line, r protocol.Record) {
	switch err := l.adopt(ctx, r, k.number, 0); {
	case err == nil || errors.Is(err, ErrEpoch):
	case ctx.Err() != nil && p.ctx.Err() != nil: // the client is being closed
	default:
		k.down(l, err)
	}
	if r := *l.record.Load(); r.Pool == p.record().Pool {
		p.learn(r)
	}
}

// witnessError returns the last error of the witness, nil if it has agreed.
func (p *pool) witnessError() error {
	if err := p.witnessErr.Load(); err != nil {
		return *err
	}
	return nil
}
