package netmem

import (
	"context"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// lease is for how long what one server has said of the record holds for a page that another has
// sent. A client that goes on without a server waits for as long, once all others know of it.
const lease = time.Second

// heartbeat is the time between two requests for a server's record.
const heartbeat = lease / 3

// view is a record as a client uses it.
type view struct {
	protocol.Record
	// since is when this client knew that all servers but those that are out have the record, in
	// nanoseconds after opened; 0: it does not know yet.
	since  atomic.Int64
	opened time.Time
	// safe: none is out that was not before, when the record held.
	safe bool
	// layout says where pages are, and next where they move to; that is nil unless they do.
	layout, next *layout
}

// number gives the links the numbers that they have in records: the order of their names.
func (p *pool) number(names []string) {
	sorted := slices.Sorted(slices.Values(names))
	digest := fnv.New64a()
	for _, name := range append(sorted, p.witnessName()) {
		digest.Write([]byte(name)) // it never fails
		digest.Write([]byte{0, byte(p.options.Copies)})
	}
	p.members = digest.Sum64()
	for i, k := range p.links {
		if k.number = i; p.names == nil {
			k.number = slices.Index(sorted, k.name())
		}
	}
}

func (p *pool) witnessName() string {
	if p.options.Witness == nil {
		return ""
	}
	return p.options.Witness.Name()
}

// learn makes a record the one that this client uses, if it is newer.
func (p *pool) learn(r protocol.Record) {
	for {
		now := p.view.Load()
		if r.Epoch <= now.Epoch {
			return
		}
		next := p.newView(r)
		if next.layout == nil {
			return // it is no record of this pool
		}
		next.safe = r.Named() && now.Epoch > 0 && p.settled(now) && !slices.ContainsFunc(p.links, func(k *link) bool {
			return r.State(k.number) == protocol.Out && now.State(k.number) != protocol.Out
		})
		if p.view.CompareAndSwap(now, next) {
			p.changes.tell()
			p.attend()
			return
		}
	}
}

func (p *pool) newView(r protocol.Record) *view {
	v := &view{Record: r, opened: time.Now(), layout: p.fixed}
	switch {
	case r.Named() != (p.names != nil):
		v.layout = nil
	case p.names != nil:
		v.layout = p.layoutOf(r, protocol.Member, protocol.Out)
		if r.Moving() {
			v.next = p.layoutOf(r, protocol.Member, protocol.Joining)
		}
	}
	return v
}

// attend has the pool look after its members.
func (p *pool) attend() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// has says that a server is connected and has the record.
func (v *view) has(k *link) bool {
	l := k.now.Load()
	return l != nil && *l.record.Load() == v.Record && (!v.Named() || int(l.self.Load()) == k.number)
}

// resigned says that a server, on its line, has said itself that it is no member any more.
func (v *view) resigned(k *link, l *line) bool { return l.blank() || l.lacks(v.Record, k.number) }

// forming says that not all servers may have been told of the pool: none has been written to yet.
func (v *view) forming() bool { return v.Epoch == 1 && v.Copies() > 1 }

// told says that all servers but those that are out have the record.
func (p *pool) told(v *view) bool {
	for _, k := range p.links {
		if v.in(k) && !v.has(k) {
			return false
		}
	}
	return true
}

// in says that a server is in the pool, and not out.
func (v *view) in(k *link) bool {
	s := v.State(k.number)
	return s == protocol.Member || s == protocol.Joining
}

// settled says whether the record holds: all servers but those that are out have been told, and
// a lease has gone by if there are such. Until then a client that does not know of it may read
// from one that is out. Without a witness no server is out but by its own word.
func (p *pool) settled(v *view) bool {
	return !v.forming() && !v.Moving() && p.expired(v)
}

// expired says that no client without the record reads from a server that is out.
func (p *pool) expired(v *view) bool {
	if p.options.Witness == nil {
		return true
	}
	since := time.Duration(v.since.Load())
	if since == 0 {
		if !p.told(v) {
			return false
		}
		since = max(1, time.Since(v.opened))
		if v.safe || !p.anyOut(v.Record) {
			since = -lease
		}
		v.since.Store(int64(since))
	}
	return time.Since(v.opened)-since >= lease
}

func (p *pool) anyOut(r protocol.Record) bool {
	return slices.ContainsFunc(p.links, func(k *link) bool { return r.State(k.number) == protocol.Out })
}

// settle waits until the record holds, and fails with ErrUnavailable when ctx ends or the record
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

// missing is an error that names a server which is not out and not connected; nil if there is
// none.
func (p *pool) missing(v *view) error {
	for _, k := range p.links {
		if !v.in(k) {
			continue
		}
		if k.now.Load() == nil {
			return &Error{Op: "reach", Device: k.name(), Err: k.why(), Hint: p.waitsFor()}
		}
	}
	return nil
}

// waitsFor says what a pool needs to go on without a server.
func (p *pool) waitsFor() string {
	if p.options.Witness == nil {
		return "writes wait for it: a witness (Options.Witness, --witness) lets the pool go on without it"
	}
	return "the pool goes on without it once it has been away for the timeout, if the witness agrees"
}

// confirmed says whether a page that server from has sent is the newest, as of now: no other
// client can have gone on without that server. sure asks the other servers where what they
// have said is older than a lease.
func (p *pool) confirmed(ctx context.Context, v *view, from *link) bool {
	if p.options.Witness == nil || p.outside(v.Record) == p.options.Copies-1 {
		return true // no client goes on without one more server
	}
	for _, k := range p.links {
		if l := k.now.Load(); l != nil && k != from && v.State(k.number) == protocol.Member && *l.record.Load() == v.Record &&
			time.Since(l.opened)-time.Duration(l.heard.Load()) < lease {
			return true
		}
	}
	for _, k := range p.links {
		if l := k.now.Load(); l != nil && k != from && v.State(k.number) == protocol.Member {
			if d, err := l.describe(ctx, &protocol.Request{Operation: protocol.Describe}); err == nil && d.Record == v.Record {
				return true
			}
		}
	}
	return false
}

// outside returns the number of servers of a record that are no members. One that joins a pool with a name has no
// pages of it yet.
func (p *pool) outside(r protocol.Record) (n int) {
	for i := range p.links {
		if s := r.State(i); s == protocol.Out || s == protocol.Joining && !r.Named() {
			n++
		}
	}
	return n
}
