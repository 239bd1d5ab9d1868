package netmem

import (
	"context"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// reconcile makes all copies of each page the newest that a member has. So it finishes the writes of clients that have died
// between two copies, and gives servers that join what they have not. It fails if a server or the
// configuration changes. The copies are not whole if all members of a page are gone.
func (p *pool) reconcile(ctx context.Context, v *view) (whole, done bool) {
	n := uint64(p.page / protocol.StampSize)
	whole = true
	for first := uint64(0); first < p.pages; first += n {
		run := min(n, p.pages-first)
		stamps := map[*link][]protocol.Stamp{}
		for _, k := range p.links {
			if !v.Servers[k.number].Present() {
				continue
			}
			if stamps[k], done = p.stamps(ctx, v, k, first, int(run)); !done {
				return false, false
			}
		}
		for i := range run {
			kept, ok := p.reconcilePage(ctx, v, first+i, func(k *link) protocol.Stamp { return stamps[k][i] })
			if !ok || ctx.Err() != nil || p.view.Load() != v {
				return false, false
			}
			whole = whole && kept
		}
	}
	return whole, true
}

// reconcilePage is reconcile of a page. It copies in the order in which the page is written.
func (p *pool) reconcilePage(ctx context.Context, v *view, page uint64, stamp func(*link) protocol.Stamp) (kept, done bool) {
	var room [maxCopies]*link
	list, members := p.places(v, page, room[:0])
	if members == 0 {
		return len(list) == 0, true
	}
	newest := list[0]
	for _, k := range list[1:members] {
		if stamp(k).Version > stamp(newest).Version {
			newest = k
		}
	}
	for _, k := range list {
		if !stamp(k).Same(stamp(newest)) && p.copyPage(ctx, v, page, newest, k) != nil {
			return false, false
		}
	}
	return true, true
}

// copyToJoining makes sure that a server which joins has what has been read from a member. The page may be
// of a write that is under way; once the server is a member, it is read there.
func (p *pool) copyToJoining(ctx context.Context, v *view, page uint64, r protocol.Reply, from, to *link) bool {
	has, ok := p.stamps(ctx, v, to, page, 1)
	return ok && (has[0].Same(r.Stamp) || p.copyPage(ctx, v, page, from, to) == nil)
}

func (p *pool) stamps(ctx context.Context, v *view, k *link, first uint64, n int) ([]protocol.Stamp, bool) {
	l := v.line(k)
	if l == nil {
		return nil, false
	}
	frame, free, err := p.lendScratch(ctx)
	if err != nil {
		return nil, false
	}
	defer free()
	frame.Length = n * protocol.StampSize
	r, err := l.copy(ctx, protocol.Stamps, v.Epoch, first, frame)
	if err != nil {
		k.down(l, err)
		return nil, false
	}
	if r.Result != protocol.OK {
		p.hurry()
		return nil, false
	}
	list := make([]protocol.Stamp, n)
	for i := range list {
		list[i] = protocol.StampAt(frame.Bytes()[i*protocol.StampSize:])
	}
	return list, true
}

// copyPage copies a page from one server to another, unless that one has a newer one.
func (p *pool) copyPage(ctx context.Context, v *view, page uint64, from, to *link) error {
	source, target := v.line(from), v.line(to)
	if source == nil || target == nil {
		return errRestarted
	}
	frame, free, err := p.lendScratch(ctx)
	if err != nil {
		return err
	}
	defer free()
	r, err := source.copy(ctx, protocol.Fetch, v.Epoch, page, frame)
	if err != nil {
		return from.down(source, err)
	}
	if r.Result != protocol.OK {
		return refusal(r.Result)
	}
	p.counters.repaired.Add(1)
	w, err := target.writeOlder(ctx, v.Epoch, page, frame, Version(r.Version), r.Client)
	if err != nil {
		return to.down(target, err)
	}
	if w.Result == protocol.OK || w.Result == protocol.VersionConflict {
		return nil
	}
	return refusal(w.Result)
}

// lendScratch lends a frame for a page on its way from one server to another.
func (p *pool) lendScratch(ctx context.Context) (ring.Frame, func(), error) {
	select {
	case n := <-p.scratch.free:
		return p.scratch.frame(n, p.page), func() { p.scratch.returned(n) }, nil
	case <-ctx.Done():
		return ring.Frame{}, nil, ctx.Err()
	case <-p.ctx.Done():
		return ring.Frame{}, nil, ErrClosed
	}
}
