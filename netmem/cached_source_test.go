package netmem_test

import (
	"errors"
	"io"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/netmem"
)

// TestCachedSource: mapped pages, file blocks and pages of others share the frames of a client, and each
// sees what the others have written.
func TestCachedSource(t *testing.T) {
	const pages, frames = 40, 16
	c := newCrew(t, 2, pages)
	x, idle := c.join(0, frames), c.join(1, 2*frames)
	c.until("the other to be connected", func() bool { return connected(x) == 1 })
	s := x.Source()
	defer func() {
		should.OK(t, s.(io.Closer).Close())
	}()
	memory := must.Get(s.Alloc(4 * coopPage))(t)
	if _, err := s.Alloc(1); err == nil {
		t.Error("memory was allocated twice")
	}
	get := func(page, at int) uint64 {
		t.Helper()
		return must.Get(s.ReadPage(t.Context(), uint64(page), at*coopPage))(t)
	}
	at := func(n int) []byte { return memory[n*coopPage:][:coopPage] }
	c.until("pages to come from the other", func() bool {
		for i := range pages {
			get(i, 0)
			must.Same(t, at(0), content(i), "page %d is wrong", i)
		}
		return x.Stats().FromHosts > 0
	})
	if idle.Stats().Kept == 0 {
		t.Error("nothing is kept")
	}
	// A file block that was written shows in the mapping, and the other way round.
	block := randomBytes(1000, coopPage)
	c.write(x, block, 5*coopPage)
	v := get(5, 1)
	should.Same(t, at(1), block, "the mapping has an old block")
	copy(at(1), content(77))
	next, err := s.WritePage(t.Context(), 5, coopPage, v)
	if err != nil || next <= v {
		t.Fatalf("version %d after %d, %v", next, v, err)
	}
	should.Same(t, c.read(x, coopPage, 5*coopPage), content(77), "the file has an old page")
	idle.Drop()
	should.Same(t, c.read(idle, coopPage, 5*coopPage), content(77), "the other client has an old page")
	var conflict *netmem.ConflictError
	if _, err := s.WritePage(t.Context(), 5, coopPage, v); !errors.As(err, &conflict) || conflict.Found != netmem.Version(next) {
		t.Errorf("an old version was written: %v", err)
	}
	should.Refuse(s.ReadPage(t.Context(), pages, 0))(t, netmem.ErrOutside, "a page behind the end")
	should.Refuse(s.WritePage(t.Context(), 0, 4*coopPage-1, v))(t, netmem.ErrOutside, "from behind the memory")
	// Pages that are not in the cache are written, too, by several at a time.
	var busy sync.WaitGroup
	for w := range 4 {
		busy.Go(func() {
			for i := w; i < pages; i += 4 {
				v, err := s.ReadPage(t.Context(), uint64(i), w*coopPage)
				copy(at(w), content(i+pages))
				if err == nil {
					_, err = s.WritePage(t.Context(), uint64(i), w*coopPage, v)
				}
				if err != nil {
					t.Errorf("page %d: %v", i, err)
				}
			}
		})
	}
	busy.Wait()
	idle.Drop()
	for i := range pages {
		c.expectOf(idle, i, content(i+pages))
		c.expectOf(x, i, content(i+pages))
	}
}
