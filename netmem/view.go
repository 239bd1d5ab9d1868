package netmem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/placement"
)

// holds says that no client has gone on with a later configuration, as of now.
func (v *view) holds() bool { return time.Since(*v.named.Load()) < lease }

// line is the connection with a server if that is the process of the configuration, else nil.
func (v *view) line(k *link) *line {
	l := k.now.Load()
	if l != nil && v.Servers != nil && l.incarnation != v.Servers[k.number].Incarnation {
		return nil
	}
	return l
}

// has says that a server is connected, and knows the configuration.
func (v *view) has(k *link) bool {
	l := v.line(k)
	return l != nil && l.record.Load().Pool == v.Pool && l.record.Load().Epoch == v.Epoch
}

// places puts the servers of a page into into, in the order in which they are written, and returns how many of them
// are members. These come first, those before others that have been let in earlier. So the member that is
// written last, which is read, has nothing that another one has not.
func (p *pool) places(v *view, page uint64, into []*link) (list []*link, members int) {
	if p.alone {
		return append(into, p.only(page)), 1
	}
	list = into
	var room [maxCopies]int
	at := room[:p.options.Copies]
	p.placement.Of(page, at)
	for _, n := range at {
		if k := p.links[n]; v.Servers[k.number].Present() {
			list = append(list, k)
		}
	}
	slices.SortStableFunc(list, func(a, b *link) int {
		s, t := v.Servers[a.number], v.Servers[b.number]
		if s.Joining != t.Joining {
			if t.Joining {
				return -1
			}
			return 1
		}
		return int(s.Since) - int(t.Since)
	})
	for members < len(list) && !v.Servers[list[members].number].Joining {
		members++
	}
	return list, members
}

// ask asks the store for the configuration, unless a view is given and holds. One call at a time does.
func (p *pool) ask(ctx context.Context, unless *view) error {
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if unless != nil && unless.holds() {
		return nil
	}
	sent := time.Now()
	c, revision, err := p.get(ctx)
	switch {
	case err != nil:
	case revision == 0:
		err = fmt.Errorf("%w: it has no configuration any more", ErrNoStore)
	default:
		err = p.learn(c, revision, sent)
	}
	p.storeErr.Store(&err)
	return err
}

// get asks the store. The revision is 0 if there is no configuration.
func (p *pool) get(ctx context.Context) (c placement.Configuration, revision int64, err error) {
	within, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	b, revision, err := p.options.Store.Get(within)
	if err == nil && revision != 0 {
		c, err = placement.Parse(b)
	}
	if err != nil {
		return c, 0, fmt.Errorf("%w: %w", ErrNoStore, err)
	}
	named := func(s placement.Server, name string) bool { return s.Name == name }
	if revision != 0 && (c.Copies != p.options.Copies || !slices.EqualFunc(c.Servers, p.names, named)) {
		return c, 0, &Error{Op: "use the pool", Err: ErrOtherPool, Hint: "all clients of a store name the same servers and copies"}
	}
	return c, revision, nil
}

// swap makes next the configuration in the place of v's, unless another client is faster.
func (p *pool) swap(ctx context.Context, v *view, next placement.Configuration) {
	within, cancel := context.WithTimeout(ctx, p.options.Timeout)
	defer cancel()
	if err := p.options.Store.Swap(within, next.Encode(), v.revision); err != nil {
		err = fmt.Errorf("%w: %w", ErrNoStore, err)
		p.storeErr.Store(&err)
		return // it may have been done: the next question tells
	}
	_ = p.ask(within, nil) // it is asked again
}

// storeError is why the store has not named a configuration, nil if it has.
func (p *pool) storeError() error {
	if err := p.storeErr.Load(); err != nil {
		return *err
	}
	return nil
}

// learn makes a configuration the one that this client uses, if it is newer. The store was asked at a time.
func (p *pool) learn(c placement.Configuration, revision int64, asked time.Time) error {
	now := p.view.Load()
	switch {
	case now.Pool != 0 && c.Pool != now.Pool:
		return &Error{Op: "use the pool", Err: ErrOtherPool, Hint: "it has begun anew: open another client"}
	case c.Epoch == now.Epoch:
		now.named.Store(&asked)
		return nil
	case c.Epoch < now.Epoch:
		return fmt.Errorf("%w: it has epoch %d after %d", ErrNoStore, c.Epoch, now.Epoch)
	}
	next := &view{Configuration: c, revision: revision, opened: time.Now(), after: now.after}
	next.named.Store(&asked)
	if c.Lost > now.Epoch {
		next.after = next.opened.Add(lease)
	}
	p.view.Store(next)
	p.changes.tell()
	p.attend()
	return nil
}

// settled says whether the configuration can be used: all its servers know it, and so take nothing of clients that
// do not, and no client reads from a member that has gone.
func (p *pool) settled(v *view) bool {
	if v.ready.Load() {
		return true
	}
	if p.missing(v) != nil || time.Now().Before(v.after) {
		return false
	}
	v.ready.Store(true)
	return true
}

// missing is an error that names a server which does not know the configuration yet; nil if there is none.
func (p *pool) missing(v *view) error {
	for _, k := range p.links {
		if v.Servers != nil && v.Servers[k.number].Present() && !v.has(k) {
			return p.unreached(v, k)
		}
	}
	return nil
}

// errRestarted: the server is another process than the configuration has.
var errRestarted = errors.New("the server has restarted without its pages")

// unreached is the error of a call for which there is no connection with a server.
func (p *pool) unreached(v *view, k *link) error {
	err, hint := errRestarted, ""
	if k.now.Load() == nil {
		err = k.why()
	}
	if !p.alone {
		hint = "the pool goes on without it once it has been away for the timeout, if the store answers"
	}
	return &Error{Op: "reach", Device: k.name(), Err: err, Hint: hint}
}

// holders are the servers of a page, as of places, once the configuration can be used. It fails if no member is left.
func (p *pool) holders(ctx context.Context, v *view, op string, page uint64, into []*link) (list []*link, members int, err error) {
	if !p.settled(v) {
		if err := p.settle(ctx, v, op, page); err != nil {
			return nil, 0, err
		}
	}
	if list, members = p.places(v, page, into); members == 0 {
		err = &Error{Op: onPage(op, page), Err: ErrLost}
	}
	return list, members, err
}

// settle waits until the configuration can be used, and fails with ErrUnavailable when ctx ends or the configuration
// changes before.
func (p *pool) settle(ctx context.Context, v *view, op string, page uint64) error {
	for !p.settled(v) {
		changed := p.changes.watch()
		if p.view.Load() != v {
			return &Error{Op: onPage(op, page), Err: errChanged}
		}
		select {
		case <-ctx.Done():
			return &Error{Op: onPage(op, page), Err: ctx.Err()}
		case <-p.ctx.Done():
			return &Error{Op: onPage(op, page), Err: ErrClosed}
		case <-changed:
		case <-time.After(heartbeat / 8):
		}
		if missing := p.missing(v); missing != nil {
			return unavailable(op, page, missing)
		}
	}
	return nil
}
