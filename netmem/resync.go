package netmem

import (
	"context"
	"errors"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/netmem/protocol"
	"github.com/trapeze-nic/trapeze/ring"
)

// bringUpToDate copies to a server what it has missed, and reports whether it now has all
// that it should have.
func (k *link) bringUpToDate(ctx context.Context, l *line) bool {
	p := k.pool
	if !l.trusted.Load() {
		if p.alone() { // its memory is lost; what is written from now on counts
			return true
		}
		if !k.copyAll(ctx, l) {
			return false
		}
		d, err := l.join(ctx, p.number, p.base)
		if err != nil || d.Pool != p.number {
			k.down(l, errors.Join(err, ErrOtherPool))
			return false
		}
		l.trusted.Store(true)
	}
	for page, ok := k.firstOwed(0); ok; page, ok = k.firstOwed(page + 1) {
		if !k.copyPage(ctx, l, page) {
			return false
		}
		k.paid(page)
	}
	return true
}

// copyAll copies all pages that belong on a server which has none.
func (k *link) copyAll(ctx context.Context, l *line) bool {
	p := k.pool
	self := slices.Index(p.links, k)
	places := make([]int, p.placement.Copies())
	for page := range p.pages {
		if p.placement.Of(page, places); !slices.Contains(places, self) {
			continue
		}
		if !k.copyPage(ctx, l, page) {
			return false
		}
		k.paid(page)
	}
	return true
}

// copyPage copies a page from another server that has it to this one, unless this one has
// a newer version.
func (k *link) copyPage(ctx context.Context, l *line, page uint64) bool {
	if ctx.Err() != nil || k.now.Load() != l {
		return false
	}
	p := k.pool
	frame, free, err := p.scratch()
	if err != nil {
		return false
	}
	defer free()
	r, err := p.fetchFrom(ctx, page, 0, frame, k)
	if err != nil {
		return false
	}
	if r.Flags&protocol.Unwritten != 0 {
		return true
	}
	p.counters.repaired.Add(1)
	w, err := l.write(ctx, page, frame, protocol.IfOlder, 0, Version(r.Version), r.Client)
	if err != nil {
		k.down(l, err)
		return false
	}
	return w.Result == protocol.OK || w.Result == protocol.VersionConflict
}

// scratch lends a frame for a page on its way from one server to another.
func (p *pool) scratch() (ring.Frame, func(), error) {
	select {
	case n := <-p.scratches:
		return ring.Frame{Memory: p.scratchMemory, Offset: n * p.page, Length: p.page}, func() { p.scratches <- n }, nil
	case <-p.ctx.Done():
		return ring.Frame{}, nil, ErrClosed
	}
}
