package emulator

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestWindowsModel compares windows that are joined and cut with a list of
// pages.
func TestWindowsModel(t *testing.T) {
	const pages = 64
	mem := testMemory(t, pages)
	rapid.Check(t, func(r *rapid.T) {
		u := iommu{master: true}
		var at [pages]int // page of mem at each page of the bus, plus one; zero: none
		var ends [pages + 1]bool
		for range rapid.IntRange(1, 80).Draw(r, "steps") {
			first := rapid.IntRange(0, pages-1).Draw(r, "first")
			n := rapid.IntRange(1, min(8, pages-first)).Draw(r, "pages")
			if rapid.Bool().Draw(r, "map") {
				from := rapid.SampledFrom([]int{first, rapid.IntRange(0, pages-n).Draw(r, "from")}).Draw(r, "memory")
				free := true
				for i := first; i < first+n; i++ {
					free = free && at[i] == 0
				}
				err := u.addWindow(mem[from*testPage:(from+n)*testPage:(from+n)*testPage], uint64(first)*testPage, vfio.DMARead)
				if free != (err == nil) || err != nil && !errors.Is(err, vfio.ErrIOVAInUse) {
					r.Fatalf("map %d pages at %d: %v, free %v", n, first, err, free)
				}
				for i := first; free && i < first+n; i++ {
					at[i] = from + i - first + 1
				}
				ends[first], ends[first+n] = ends[first] || free, ends[first+n] || free
			} else if ends[first] && ends[first+n] { // windows are not cut in two
				u.removeWindows(uint64(first)*testPage, uint64(first+n)*testPage-1)
				for i := first; i < first+n; i++ {
					at[i] = 0
				}
			}
		}
		for i := range pages {
			w, err := u.Window(uint64(i)*testPage, testPage, false)
			must.Be(r, err == nil, at[i] != 0, "page %d: %v, memory %d", i, err, at[i])
			if err == nil && &w[0] != &mem[(at[i]-1)*testPage] {
				r.Fatalf("page %d is elsewhere", i)
			}
		}
		for i := 1; i < len(u.mappings); i++ {
			a, b := &u.mappings[i-1], &u.mappings[i]
			if a.end() > b.iova {
				r.Fatalf("mappings overlap: %#x+%#x, %#x", a.iova, a.size, b.iova)
			}
		}
	})
}

func TestWindowsAreJoined(t *testing.T) {
	const pages = 1000
	mem := testMemory(t, pages)
	u := iommu{master: true}
	for i := range pages {
		p := (i * 7) % pages
		must.OK(t, u.addWindow(mem[p*testPage:(p+1)*testPage:(p+1)*testPage], uint64(p)*testPage, vfio.DMARead))
	}
	must.Be(t, len(u.mappings), 1, "mappings")
	if w, err := u.Window(0, pages*testPage, false); err != nil || len(w) != pages*testPage {
		t.Fatalf("%d bytes, %v", len(w), err)
	}
	u.removeWindows(0, ^uint64(0))
	must.Be(t, len(u.mappings), 0, "mappings are left")
	for _, iova := range []uint64{^uint64(0) - testPage + 1, ^uint64(0) &^ (testPage - 1)} {
		should.Fail(t, u.addWindow(mem[:testPage], iova, vfio.DMARead), vfio.ErrIOVARange, "window at %#x", iova)
	}
}
