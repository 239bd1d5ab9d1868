package netmem

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// errChanged: the record of the pool has changed during an attempt. The call tries again.
var errChanged = errors.New("the record of the pool has changed")

// errBlank: the call waits until the record says that the server is no member any more.
var errBlank = errors.New("the server has restarted without its pages")

// read fetches a part of a page into a frame. It waits for servers that are connecting again, and for the
// pool to go on without them. With a lookup, which is of a whole page, it may find out where the page is
// instead.
func (p *pool) read(ctx context.Context, page uint64, offset int, into ring.Frame, find *lookup) (protocol.Reply, error) {
	if find == nil && p.alone { // before the clock is read, which takes as long as a part of a copy
		v := p.view.Load()
		if l := v.layout.only(page).now.Load(); l != nil {
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
		var r protocol.Reply
		var err error
		if p.alone {
			r, err = p.fetchAlone(ctx, v, page, offset, into, find)
		} else {
			r, err = p.fetchLast(ctx, v, page, offset, into, find)
		}
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

// fetchAlone is one attempt at that where each page is on one server.
func (p *pool) fetchAlone(ctx context.Context, v *view, page uint64, offset int, into ring.Frame, find *lookup) (protocol.Reply, error) {
	k := v.layout.only(page)
	l := k.now.Load()
	if l == nil {
		return protocol.Reply{}, unavailable("fetch", page, &Error{Op: "reach", Device: k.name(), Err: k.why()})
	}
	r, err := p.fetchFrom(ctx, v, k, l, page, offset, into, find)
	if err == nil && r.Flags&protocol.Unwritten != 0 && l.blank() {
		return r, &Error{Op: onPage("fetch", page), Err: ErrLost}
	}
	return r, err
}

// fetchLast is one attempt at that where pages have copies: it reads the copy that is written last.
func (p *pool) fetchLast(ctx context.Context, v *view, page uint64, offset int, into ring.Frame, find *lookup) (protocol.Reply, error) {
	if !p.settled(v) {
		if err := p.settle(ctx, v, "fetch", page); err != nil {
			return protocol.Reply{}, err
		}
	}
	var room [maxCopies]*link
	places := p.places(v, page, room[:0])
	k := p.last(v, places)
	if k == nil {
		return protocol.Reply{}, &Error{Op: onPage("fetch", page), Err: ErrLost}
	}
	if k.now.Load() == nil && p.options.Witness == nil {
		// No pool without a witness goes on without a member, so each has all that was
		// acknowledged. The others may also have a write that is under way.
		k = p.lastConnected(v, places, k)
	}
	l := k.now.Load()
	switch {
	case l == nil:
		return protocol.Reply{}, unavailable("fetch", page, &Error{Op: "reach", Device: k.name(), Err: k.why(), Hint: p.waitsFor()})
	case l.blank() && p.outside(v.Record) == p.options.Copies-1:
		return protocol.Reply{}, &Error{Op: onPage("fetch", page), Err: ErrLost}
	case l.blank():
		p.attend()
		return protocol.Reply{}, unavailable("fetch", page, &Error{Op: "reach", Device: k.name(), Err: errBlank})
	}
	r, direct, err := protocol.Reply{}, false, error(nil)
	if w := l.window.Load(); w != nil && find == nil {
		r, direct = p.readDirect(ctx, v, l, w, page, offset, into)
	}
	if !direct {
		r, err = p.fetchFrom(ctx, v, k, l, page, offset, into, find)
	}
	if err != nil {
		return r, err
	}
	if !p.confirmed(ctx, v, k) {
		return r, unavailable("fetch", page, p.missing(v))
	}
	for _, to := range places {
		if v.State(to.number) == protocol.Joining && !p.bring(ctx, v, page, r, k, to) {
			return r, unavailable("fetch", page, p.missing(v))
		}
	}
	return r, nil
}

// bring makes sure that a server which joins has what has been read from a member. The page may be
// of a write that is under way; once the server is a member, it is read there.
func (p *pool) bring(ctx context.Context, v *view, page uint64, r protocol.Reply, from, to *link) bool {
	has, ok := p.stamps(ctx, v, to, page, 1)
	if !ok {
		return false
	}
	if has[0].Same(protocol.Stamp{Version: r.Version, Client: r.Client}) {
		return true
	}
	l := to.now.Load()
	return l != nil && p.copyPage(ctx, v, page, from, to, l, protocol.Exactly) == nil
}

// fetchFrom fetches from one server, by a request.
func (p *pool) fetchFrom(ctx context.Context, v *view, k *link, l *line, page uint64, offset int, into ring.Frame, find *lookup) (r protocol.Reply, err error) {
	if find != nil {
		r, err = l.find(ctx, v.Epoch, page, into, find)
	} else {
		r, err = l.fetch(ctx, protocol.Fetch, v.Epoch, page, offset, into)
	}
	switch {
	case err != nil:
		return r, p.lost(ctx, "fetch", page, k, l, err)
	case r.Result != protocol.OK:
		return r, p.refused("fetch", page, k, r.Result)
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
	if errors.Is(err, ErrEpoch) { // it has another record than this client thinks: ask
		k.look()
		p.attend()
		err = unavailable(op, page, err)
	}
	return &Error{Op: onPage(op, page), Device: k.name(), Err: err}
}
