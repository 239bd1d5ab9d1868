package emulator

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

const testPage = 4096

func testMemory(t testing.TB, pages int) []byte {
	t.Helper()
	m := must.Get(vfio.AllocMemory(uint64(pages)*testPage, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
	t.Cleanup(func() { m.Close() })
	return m.Bytes()
}

func TestWindow(t *testing.T) {
	mem := testMemory(t, 6)
	u := iommu{master: true}
	// Pages 0 and 1 of mem are neighbours in both, page 2 follows on the bus
	// only, pages 3 and 4 have other rights.
	for _, m := range []struct {
		page  int
		iova  uint64
		flags vfio.DMAFlags
	}{
		{0, 0x10000, vfio.DMARead | vfio.DMAWrite},
		{1, 0x11000, vfio.DMARead | vfio.DMAWrite},
		{5, 0x12000, vfio.DMARead | vfio.DMAWrite},
		{3, 0x20000, vfio.DMARead},
		{4, 0x21000, vfio.DMAWrite},
	} {
		must.OK(t, u.add(mem[m.page*testPage:(m.page+1)*testPage:(m.page+1)*testPage], m.iova, m.flags))
	}
	tests := []struct {
		name    string
		iova, n uint64
		write   bool
		at, len int // in mem
		err     error
	}{
		{"first byte", 0x10000, 1, false, 0, 1, nil},
		{"whole page", 0x10000, 4096, true, 0, 4096, nil},
		{"end of a page", 0x10fff, 1, false, 4095, 1, nil},
		{"across two neighbours", 0x10ff0, 0x20, true, 0xff0, 0x20, nil},
		{"up to where memory does not go on", 0x10800, 0x10000, false, 0x800, 0x1800, nil},
		{"more than there is", 0x12000, 1 << 40, false, 5 * testPage, testPage, nil},
		{"end of the address space", 0x12000, ^uint64(0), false, 5 * testPage, testPage, nil},
		{"read only, reading", 0x20000, 8, false, 3 * testPage, 8, nil},
		{"read only, writing", 0x20000, 8, true, 0, 0, errPermission},
		{"write only, reading", 0x21000, 8, false, 0, 0, errPermission},
		{"reading stops where only writing goes on", 0x20ff0, 0x20, false, 3*testPage + 0xff0, 0x10, nil},
		{"before", 0xffff, 1, false, 0, 0, errNotMapped},
		{"after", 0x13000, 1, false, 0, 0, errNotMapped},
		{"between", 0x1ffff, 1, false, 0, 0, errNotMapped},
		{"top", ^uint64(0), 1, false, 0, 0, errNotMapped},
		{"nothing", 0x10000, 0, false, 0, 0, errNotMapped},
	}
	for _, tt := range tests {
		w, err := u.Window(tt.iova, tt.n, tt.write)
		if !errors.Is(err, tt.err) || len(w) != tt.len {
			t.Errorf("%s: %d bytes, error %v, want %d, %v", tt.name, len(w), err, tt.len, tt.err)
			continue
		}
		if len(w) > 0 && (&w[0] != &mem[tt.at] || cap(w) != len(w)) {
			t.Errorf("%s: window is elsewhere or has room beyond its end", tt.name)
		}
	}
	u.setMaster(false)
	should.Refuse(u.Window(0x10000, 1, false))(t, errBusMasterOff, "bus mastering off: error")
}

// TestIOMMUIsAMap compares the IOMMU with a map from pages to pages.
func TestIOMMUIsAMap(t *testing.T) {
	mem := testMemory(t, 16)
	rapid.Check(t, func(t *rapid.T) {
		u := iommu{master: true}
		model := map[uint64]int{}     // page on the bus to page of mem
		starts := map[uint64]uint64{} // mappings: first page on the bus, pages
		t.Repeat(map[string]func(*rapid.T){
			"map": func(t *rapid.T) {
				at := rapid.Uint64Range(1, 20).Draw(t, "at")
				from := rapid.IntRange(0, 15).Draw(t, "from")
				n := rapid.IntRange(1, 16-from).Draw(t, "pages")
				taken := false
				for i := range uint64(n) {
					_, ok := model[at+i]
					taken = taken || ok
				}
				was := u.Generation()
				err := u.add(mem[from*testPage:(from+n)*testPage], at*testPage, vfio.DMARead)
				must.Be(t, (u.Generation() == was), taken, "the generation does not tell of the change")
				must.Be(t, taken, errors.Is(err, vfio.ErrIOVAInUse), "error %v", err)
				if !taken {
					starts[at] = uint64(n)
					for i := range n {
						model[at+uint64(i)] = from + i
					}
				}
			},
			"unmap": func(t *rapid.T) {
				at, n := rapid.Uint64Range(1, 20).Draw(t, "at"), rapid.Uint64Range(1, 4).Draw(t, "pages")
				was := u.Generation()
				err := u.remove(at*testPage, n*testPage)
				must.Be(t, (u.Generation() == was), err != nil, "the generation does not tell of the change")
				if exact := starts[at] == n; exact != (err == nil) {
					t.Fatalf("error %v", err)
				} else if exact {
					delete(starts, at)
					for i := range n {
						delete(model, at+i)
					}
				}
			},
			"": func(t *rapid.T) {
				for at := range uint64(40) {
					w, err := u.Window(at*testPage+5, 100, false)
					page, ok := model[at]
					if ok != (err == nil) || ok && &w[0] != &mem[page*testPage+5] {
						t.Fatalf("page %d: error %v, want page %d, %v", at, err, page, ok)
					}
				}
			},
		})
	})
}

func TestWindowAllocatesNothing(t *testing.T) {
	mem := testMemory(t, 2)
	u := iommu{master: true}
	must.OK(t, u.add(mem, testPage, vfio.DMARead))
	should.Be(t, testing.AllocsPerRun(100, func() {
		_, _ = u.Window(testPage, 2*testPage, false)
		_, _ = u.Window(0, 1, false)
	}), 0, "allocations")
}
