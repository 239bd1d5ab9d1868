package netmem

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// errChanged: the configuration of the pool has changed during an attempt. The call tries again.
var errChanged = errors.New("the record of the pool has changed")

// read fetches a part of a page into a frame. It waits for servers that are connecting again, and for the
// pool to go on without them. With a lookup, which is of a whole page, it may find out where the page is
// instead.
func (p *pool) read(ctx context.Context, page uint64, offset int, into ring.Frame, find *lookup) (protocol.Reply, error) {
	if find == nil && p.alone { // before the clock is read, which takes as long as a part of a copy
		v := p.view.Load()
		if l := p.layout.only(page).now.Load(); l != nil {
			if w := l.window.Load(); w != nil {
				if r, ok := p.readDirect(ctx, v, l, w, page, offset, into); ok && (r.Flags&protocol.Unwritten == 0 || !l.blank()) {
					p.counters.fetches.Add(1)
					return r, nil
				}
			}
		}
	}
	a := attempts{start: time.Now()}
	for {
		v := p.view.Load()
		r, err := p.fetch(ctx, v, page, offset, into, find)
		if err == nil {
			p.counters.fetches.Add(1)
			return r, nil
		}
		if err := p.retry(ctx, v, page, &a, err); err != nil {
			return protocol.Reply{}, err
		}
	}
}

// readDirect reads a part of a page out of the server's memory, if the server gives it out by the record of
// the view. Else it reports false: the server has to be asked.
func (p *pool) readDirect(ctx context.Context, v *view, l *line, w *window, page uint64, offset int, into ring.Frame) (protocol.Reply, bool) {
	at, ok, err := w.readPage(ctx, v.Epoch, page, offset, into, p.page)
	if err != nil {
		l.dropWindow(w)
	}
	if ok {
		p.counters.direct.Add(1)
	}
	return protocol.Reply{Operation: protocol.Fetch, Length: uint32(into.Length), Incarnation: l.incarnation, Version: at.Version, Client: at.Client, Flags: at.Flags}, ok
}

// fetch is one attempt at read. It asks the server of the page that is written last.
func (p *pool) fetch(ctx context.Context, v *view, page uint64, offset int, into ring.Frame, find *lookup) (r protocol.Reply, err error) {
	if !p.settled(v) {
		if err := p.settle(ctx, v, "fetch", page); err != nil {
			return r, err
		}
	}
	var room [maxCopies]*link
	list, members := p.places(v, page, room[:0])
	if members == 0 {
		return r, &Error{Op: onPage("fetch", page), Err: ErrLost}
	}
	k := list[members-1]
	l := v.line(k)
	if l == nil {
		return r, unavailable("fetch", page, p.unreached(v, k))
	}
	direct := false
	if w := l.window.Load(); w != nil && find == nil && !p.alone {
		r, direct = p.readDirect(ctx, v, l, w, page, offset, into)
	}
	if !direct {
		r, err = l.fetch(ctx, protocol.Fetch, v.Epoch, page, offset, into, find)
	}
	switch {
	case err != nil:
		return r, p.lost(ctx, "fetch", page, k, l, err)
	case r.Result != protocol.OK:
		return r, p.refused("fetch", page, k, r.Result)
	case p.alone && r.Flags&protocol.Unwritten != 0 && l.blank():
		return r, &Error{Op: onPage("fetch", page), Device: k.name(), Err: ErrLost}
	case p.alone:
		return r, nil
	}
	for _, to := range list[members:] {
		if !p.bring(ctx, v, page, r, k, to) {
			return r, unavailable("fetch", page, p.missing(v))
		}
	}
	if !v.holds() && (p.ask(ctx, v) != nil || !v.holds()) {
		return r, unavailable("fetch", page, p.storeError())
	}
	return r, nil
}

// lost ends a line on which a call has failed, and returns the error of the call.
func (p *pool) lost(ctx context.Context, op string, page uint64, k *link, l *line, err error) error {
	given := ctx.Err() // it was the caller who gave up, and not the server
	if given != nil {
		err = given
	}
	err = k.down(l, err)
	last := &Error{Op: onPage(op, page), Device: k.name(), Err: err}
	if given != nil {
		return last
	}
	p.counters.failovers.Add(1)
	return unavailable(op, page, last)
}

// refused is the error of a request that a server has refused.
func (p *pool) refused(op string, page uint64, k *link, r protocol.Result) error {
	err := refusal(r)
	if errors.Is(err, ErrEpoch) { // it knows another epoch than this client
		k.look()
		p.hurry()
		err = unavailable(op, page, err)
	}
	return &Error{Op: onPage(op, page), Device: k.name(), Err: err}
}
