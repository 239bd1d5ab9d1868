package netmem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// read fetches a page into a frame. It waits for servers that are connecting again, and for the
// pool to go on without them. With a lookup it may find out where the page is instead.
func (p *pool) read(ctx context.Context, page uint64, into ring.Frame, find *lookup) (protocol.Reply, error) {
	var a attempts
	for {
		v := p.view.Load()
		r, err := p.fetch(ctx, v, page, into, find, &a)
		if err == nil {
			p.counters.fetches.Add(1)
			return r, nil
		}
		if err := p.retry(ctx, v, page, &a, err); err != nil {
			return protocol.Reply{}, err
		}
	}
}

// readDirect reads a page out of the server's memory, if the server gives it out by the record of
// the view. Else it reports false: the server has to be asked.
func (p *pool) readDirect(ctx context.Context, v *view, l *line, w *window, page uint64, into ring.Frame) (protocol.Reply, bool) {
	at, ok, err := w.readPage(ctx, v.Epoch, page, into)
	if err != nil {
		l.dropWindow(w)
	}
	if ok {
		p.counters.direct.Add(1)
	}
	return protocol.Reply{Stamp: protocol.Stamp{Version: at.Version, Client: at.Client, Flags: at.Flags}}, ok
}

// fetch is one attempt at read. It asks the server of the page that is written last.
func (p *pool) fetch(ctx context.Context, v *view, page uint64, into ring.Frame, find *lookup, a *attempts) (r protocol.Reply, err error) {
	var room [maxCopies]*link
	list, members, err := p.holders(ctx, v, "fetch", page, room[:0])
	if err != nil {
		return r, err
	}
	k := list[members-1]
	l := v.line(k)
	if l == nil {
		return r, unavailable("fetch", page, p.unreached(v, k))
	}
	direct := false
	if w := l.window.Load(); w != nil && find == nil {
		r, direct = p.readDirect(ctx, v, l, w, page, into)
	}
	if !direct {
		a.start = cmp.Or(a.start, time.Now()) // not before: to read the clock takes as long as a good part of a copy
		q := protocol.Request{Operation: protocol.Fetch, Epoch: v.Epoch, Page: page, Length: uint32(into.Length)}
		if find == nil {
			r, _, err = l.call(ctx, &q, ring.Frame{}, into)
		} else {
			r, err = find.ask(ctx, l, &q, into)
		}
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
		if !p.copyToJoining(ctx, v, page, r, k, to) {
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

// attempts are those of a call so far.
type attempts struct {
	start time.Time // of the first, from when on the call waits
	// restarted: a server has said that it is another one. One that says so again, after a
	// new connection, does not mean it.
	restarted bool
}

// retry returns nil if a call is to be made once more, else with what it fails: its last attempt,
// with view v, has failed with err. It waits for something to change, until ctx's deadline. Without
// one it waits until a server that is needed has been away for the timeout, and the pool had the
// time to go on without it.
func (p *pool) retry(ctx context.Context, v *view, page uint64, a *attempts, err error) error {
	a.start = cmp.Or(a.start, time.Now())
	changed := p.changes.watch()
	restarted := errors.Is(err, ErrRestarted)
	switch {
	case errors.Is(err, errChanged), p.view.Load() != v:
		return ctx.Err()
	case !errors.Is(err, ErrUnavailable) || permanent(err) || restarted && a.restarted:
		return err
	}
	a.restarted = restarted
	limit := p.options.Timeout
	if !p.alone {
		limit = 2*limit + 4*lease
	}
	var room [maxCopies]*link
	list, _ := p.places(v, page, room[:0])
	for _, k := range list {
		if k.now.Load() != nil {
			continue
		}
		switch {
		case !p.alone:
		case permanent(k.why()):
			return err
		case time.Since(k.awaySince()) > limit:
			a.start = a.start.Add(-limit) // it is dead: the call does not wait for it
		}
		k.look()
	}
	wait := lastRetry
	if _, limited := ctx.Deadline(); !limited {
		if wait = min(wait, limit-time.Since(a.start)); wait <= 0 {
			return p.withStoreError(err)
		}
	}
	select {
	case <-ctx.Done():
		return &Error{Op: onPage("wait for a server of", page), Err: fmt.Errorf("%w: %w", ctx.Err(), p.withStoreError(err))}
	case <-changed:
	case <-time.After(wait):
	case <-p.ctx.Done():
		return err
	}
	return nil
}

// withStoreError adds to an error what the store has said, if the pool waits for it.
func (p *pool) withStoreError(err error) error {
	if s := p.storeError(); s != nil && errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("%w; %w", err, s)
	}
	return err
}

// permanent reports whether a server that failed with err can never return with its pages.
func permanent(err error) bool {
	return errors.Is(err, ErrProtocol) || errors.Is(err, ErrOtherPool) || errors.Is(err, ErrOption)
}

// lookup is a question to a server: where a page is, or the page.
type lookup struct {
	asks  int
	among uint16
	protocol.Found
}

// ask makes a fetch the question, and asks it.
func (k *lookup) ask(ctx context.Context, l *line, q *protocol.Request, into ring.Frame) (protocol.Reply, error) {
	q.Operation, q.Offset, q.Next = protocol.Find, uint32(k.asks+1), uint64(k.among)
	r, reply, err := l.call(ctx, q, ring.Frame{}, into)
	if err != nil || r.Result != protocol.OK {
		return r, err
	}
	if k.Found, err = protocol.ParseFound(reply.Bytes()); err != nil {
		return r, err
	}
	if (k.Host < 0) != (r.Length > 0) {
		return r, fmt.Errorf("%w: host %d has the page, and %d bytes of it came", ErrProtocol, k.Host, r.Length)
	}
	return r, nil
}
