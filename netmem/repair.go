package netmem

import (
	"context"
	"slices"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// runs calls f for each run of pages whose stamps fit into a frame. It has their stamps on each of
// the servers that list names, by link. It stops at the first that fails.
func (p *pool) runs(ctx context.Context, v *view, list []*link, f func(first uint64, stamps map[*link][]protocol.Stamp) bool) bool {
	n := uint64(p.page / protocol.StampSize)
	for first := uint64(0); first < p.pages; first += n {
		run := min(n, p.pages-first)
		stamps := map[*link][]protocol.Stamp{}
		for _, k := range list {
			var ok bool
			if stamps[k], ok = p.stamps(ctx, v, k, first, int(run)); !ok {
				return false
			}
		}
		if ctx.Err() != nil || p.view.Load() != v || !f(first, stamps) {
			return false
		}
	}
	return true
}

// stamps fetches the stamps of n pages of a server.
func (p *pool) stamps(ctx context.Context, v *view, k *link, first uint64, n int) ([]protocol.Stamp, bool) {
	l := k.now.Load()
	if l == nil || l.blank() && v.in(k) {
		return nil, false
	}
	frame, free, err := p.scratch(ctx)
	if err != nil {
		return nil, false
	}
	defer free()
	frame.Length = n * protocol.StampSize
	r, err := l.fetch(ctx, protocol.Stamps, v.Epoch, first, 0, frame)
	if err != nil {
		k.down(l, err)
		return nil, false
	}
	if r.Result != protocol.OK {
		p.attend()
		return nil, false
	}
	list := make([]protocol.Stamp, n)
	for i := range list {
		list[i] = protocol.StampAt(frame.Bytes()[i*protocol.StampSize:])
	}
	return list, true
}

// copyTo makes the pages of a server that joins those of the members. Whatever is written
// meanwhile is written to it, too.
func (p *pool) copyTo(ctx context.Context, v *view, to *link, l *line) bool {
	return p.runs(ctx, v, p.present(v), func(first uint64, stamps map[*link][]protocol.Stamp) bool {
		for i, have := range stamps[to] {
			page := first + uint64(i)
			var room [maxCopies]*link
			places := p.places(v, page, room[:0])
			if !slices.Contains(places, to) {
				continue
			}
			from := p.last(v, places)
			if from == nil || stamps[from][i].Same(have) {
				continue
			}
			if p.copyPage(ctx, v, page, from, to, l, protocol.Exactly) != nil {
				return false
			}
		}
		return true
	})
}

// present is the servers that are not out.
func (p *pool) present(v *view) (list []*link) {
	for _, k := range p.links {
		if v.in(k) {
			list = append(list, k)
		}
	}
	return list
}

// last is the member of a page that is written last, and read; nil if there is none.
func (p *pool) last(v *view, places []*link) *link {
	for i := len(places) - 1; i >= 0; i-- {
		if v.State(places[i].number) == protocol.Member {
			return places[i]
		}
	}
	return nil
}

// lastConnected is last among those that are connected, else other.
func (p *pool) lastConnected(v *view, places []*link, other *link) *link {
	for i := len(places) - 1; i >= 0; i-- {
		if k := places[i]; v.State(k.number) == protocol.Member && k.now.Load() != nil {
			return k
		}
	}
	return other
}

// reconcile finishes the writes of clients that have died between two copies: the first member
// of a page has it then, and others do not.
func (p *pool) reconcile(ctx context.Context, v *view) bool {
	return p.runs(ctx, v, p.present(v), func(first uint64, stamps map[*link][]protocol.Stamp) bool {
		n := min(uint64(p.page/protocol.StampSize), p.pages-first)
		for i := range n {
			page := first + i
			var room [maxCopies]*link
			places := p.places(v, page, room[:0])
			newest := places[0]
			for _, k := range places {
				if stamps[k][i].Version > stamps[newest][i].Version {
					newest = k
				}
			}
			for _, k := range places {
				if !stamps[k][i].Same(stamps[newest][i]) && !p.mend(ctx, v, page, newest, k) {
					return false
				}
			}
		}
		return true
	})
}

// mend gives a member the copy of a page that another one has.
func (p *pool) mend(ctx context.Context, v *view, page uint64, from, to *link) bool {
	l := to.now.Load()
	return l != nil && p.copyPage(ctx, v, page, from, to, l, protocol.IfOlder) == nil
}

// copyPage copies a page from one server to another, unless that one has a newer one.
func (p *pool) copyPage(ctx context.Context, v *view, page uint64, from, to *link, l *line, condition protocol.Condition) error {
	source := from.now.Load()
	if source == nil || source.blank() {
		return errBlank
	}
	frame, free, err := p.scratch(ctx)
	if err != nil {
		return err
	}
	defer free()
	r, err := source.fetch(ctx, protocol.Fetch, v.Epoch, page, 0, frame)
	if err != nil {
		return from.down(source, err)
	}
	if r.Result != protocol.OK {
		return refusal(r.Result)
	}
	p.counters.repaired.Add(1)
	w, err := l.write(ctx, v.Epoch, page, frame, condition, 0, Version(r.Version), r.Client)
	if err != nil {
		return to.down(l, err)
	}
	if w.Result == protocol.OK || w.Result == protocol.VersionConflict {
		return nil
	}
	return refusal(w.Result)
}

// scratch lends a frame for a page on its way from one server to another.
func (p *pool) scratch(ctx context.Context) (ring.Frame, func(), error) {
	select {
	case n := <-p.scratches:
		return ring.Frame{Memory: p.scratchMemory, Offset: n * p.page, Length: p.page}, func() { p.scratches <- n }, nil
	case <-ctx.Done():
		return ring.Frame{}, nil, ctx.Err()
	case <-p.ctx.Done():
		return ring.Frame{}, nil, ErrClosed
	}
}
