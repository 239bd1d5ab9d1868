//go:build !race

// Under the race detector a sync.Pool drops some of what it is given.

package netmem_test

import (
	"context"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// TestNoAllocation: a fetch allocates nothing at either end, past the cache or through it,
// nor does a page that is found there, written, or written back.
func TestNoAllocation(t *testing.T) {
	const page, pages = 8192, 64
	r := newRig(t, emulator.PairOptions{Threads: true})
	s := r.serve(netmem.ServerOptions{Page: page, Size: page * pages})
	c := r.open(netmem.Options{Cache: 8 * page, ReadAhead: -1}, s)
	r.write(c, randomBytes(1, page*pages), 0)
	r.sync(c)
	m := must.Get(r.near.Alloc(t.Context(), page, via.MemoryAttributes{}))(t)
	frame, b := ring.Frame{Memory: m, Length: page}, make([]byte, page)
	n := uint64(0)
	next := func() uint64 { n = (n + 7) % pages; return n }
	for name, f := range map[string]func(){
		"fetch past the cache": func() {
			must.Get(c.Fetch(context.Background(), next(), frame))(t)
		},
		"miss": func() {
			must.Get(c.ReadAt(b, int64(next()*page)))(t)
		},
		"hit": func() {
			must.Get(c.ReadAt(b, 5*page))(t)
		},
		"write and evict": func() {
			must.Get(c.WriteAt(b, int64(next()*page)))(t)
		},
	} {
		for range 3 * pages { // warm-up
			f()
		}
		// On a loaded machine waits sleep, which allocates: the fewest of some rounds count.
		least := testing.AllocsPerRun(30, f)
		for tries := 0; least != 0 && tries < 20; tries++ {
			least = min(least, testing.AllocsPerRun(30, f))
		}
		should.Be(t, least, 0, "%s: allocations", name)
	}
}
