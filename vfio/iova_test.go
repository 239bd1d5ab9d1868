package vfio_test

import (
	"cmp"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestIOVAAlloc(t *testing.T) {
	const page = 4096
	usual := []vfio.IOVARange{{0x1000, 0xfedfffff}, {0xfef00000, 1<<39 - 1}}
	tests := []struct {
		name        string
		ranges      []vfio.IOVARange
		granule     uint64
		size, align uint64
		want        uint64
		err         error
	}{
		{"lowest address", usual, page, page, 0, 0x1000, nil},
		{"size rounded up", []vfio.IOVARange{{0x1000, 0x2fff}}, page, page + 1, 0, 0x1000, nil},
		{"aligned", usual, page, page, 2 << 20, 2 << 20, nil},
		{"aligned less than the granule", usual, page, page, 64, 0x1000, nil},
		{"size zero", usual, page, 0, 0, 0, vfio.ErrBadSize},
		{"size that wraps", usual, page, math.MaxUint64, 0, 0, vfio.ErrNoIOVA},
		{"size that fills all", usual, page, 1<<64 - page, 0, 0, vfio.ErrNoIOVA},
		{"alignment not a power of two", usual, page, page, 3 * page, 0, vfio.ErrMisaligned},
		{"largest alignment", usual, page, page, 1 << 63, 0, vfio.ErrNoIOVA},
		{"never address 0", []vfio.IOVARange{{0, 0x1fff}}, page, page, 0, 0x1000, nil},
		{"only address 0", []vfio.IOVARange{{0, 0xfff}}, page, page, 0, 0, vfio.ErrNoIOVA},
		{"never address 0, bytes", []vfio.IOVARange{{0, 1}}, 1, 1, 0, 1, nil},
		{"adjacent parts of a granule", []vfio.IOVARange{{0x1000, 0x17ff}, {0x1800, 0x1fff}}, page, page, 0, 0x1000, nil},
		{"top of the address space", []vfio.IOVARange{{math.MaxUint64 - 0xfff, math.MaxUint64}}, page, page, 0, math.MaxUint64 - 0xfff, nil},
		{"all of it", []vfio.IOVARange{{0, math.MaxUint64}, {5, math.MaxUint64}}, page, 1<<64 - page, 0, 0x1000, nil},
		{"not quite the top", []vfio.IOVARange{{math.MaxUint64 - 0x1fff, math.MaxUint64 - 1}}, page, page, 0, math.MaxUint64 - 0x1fff, nil},
		{"starts in the last granule", []vfio.IOVARange{{math.MaxUint64 - 5, math.MaxUint64}}, page, 1, 0, 0, vfio.ErrNoIOVA},
		{"default granule", usual, 0, 1, 0, 0x1000, nil},
		{"odd granule", usual, 0x1800, 1, 0, 0x2000, nil},
		{"largest granule", []vfio.IOVARange{{0, math.MaxUint64}}, math.MaxUint64, 1, 0, 1 << 63, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := vfio.NewIOVAAllocator(tt.ranges, tt.granule).Alloc(tt.size, tt.align)
			should.Hold(t, got == tt.want && errors.Is(err, tt.err), "got %#x, %v, want %#x, %v", got, err, tt.want, tt.err)
		})
	}
}

func TestIOVAFree(t *testing.T) {
	a := vfio.NewIOVAAllocator([]vfio.IOVARange{{0x1000, 0x8fff}}, 4096)
	iova := must.Get(a.Alloc(0x2800, 0))(t)
	for _, bad := range []struct{ iova, size uint64 }{
		{iova, 0}, {iova, 0x1000}, {iova, 0x2000}, {iova, 0x3001}, {iova, math.MaxUint64},
		{iova + 0x1000, 0x2000}, {iova + 1, 0x2800}, {0, 0x2800}, {0x8000, 0x1000}, {math.MaxUint64, 1},
	} {
		should.Fail(t, a.Free(bad.iova, bad.size), vfio.ErrNotMapped, "Free(%#x, %#x)", bad.iova, bad.size)
	}
	should.Give(a.Alloc(0x5000, 0))(t, 0x4000, "after bad frees the rest")
	should.OK(t, a.Free(iova, 0x2800))
	should.Fail(t, a.Free(iova, 0x2800), vfio.ErrNotMapped, "freed twice")
}

// modelIOVA is the plainest allocator there is: a list of granules.
type modelIOVA struct {
	granule uint64
	free    map[uint64]bool // by number of the granule
	numbers []uint64        // of all granules, sorted
}

func (m *modelIOVA) alloc(size, align uint64) (uint64, bool) {
	n := (size + m.granule - 1) / m.granule
next:
	for _, first := range m.numbers {
		if align > 1 && first*m.granule%align != 0 {
			continue
		}
		for i := range n {
			if !m.free[first+i] {
				continue next
			}
		}
		for i := range n {
			m.free[first+i] = false
		}
		return first * m.granule, true
	}
	return 0, false
}

// TestIOVAProperties compares the allocator with the model, operation by
// operation, over random ranges, one of them at the end of the address space.
func TestIOVAProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &modelIOVA{granule: 1 << rapid.IntRange(0, 16).Draw(t, "granule log2"), free: map[uint64]bool{}}
		var ranges []vfio.IOVARange
		for range rapid.IntRange(1, 4).Draw(t, "ranges") {
			first := rapid.Uint64Range(0, 40).Draw(t, "first")
			if rapid.Bool().Draw(t, "high") {
				first = math.MaxUint64/m.granule - 40 + first
			}
			count := rapid.Uint64Range(1, 20).Draw(t, "count")
			last := first + count - 1
			if top := math.MaxUint64 / m.granule; last > top || last < first {
				last = top
			}
			for g := first; ; g++ {
				if g != 0 {
					m.free[g] = true
				}
				if g == last {
					break
				}
			}
			ranges = append(ranges, vfio.IOVARange{First: first * m.granule, Last: last*m.granule + (m.granule - 1)})
		}
		for g := range m.free {
			m.numbers = append(m.numbers, g)
		}
		slices.Sort(m.numbers)
		a := vfio.NewIOVAAllocator(ranges, m.granule)

		type block struct{ iova, size uint64 }
		var held []block
		alloc := func(t *rapid.T) {
			size := rapid.Uint64Range(1, 12*m.granule).Draw(t, "size")
			align := uint64(1) << rapid.IntRange(0, 20).Draw(t, "align log2")
			want, ok := m.alloc(size, align)
			got, err := a.Alloc(size, align)
			must.Hold(t, (!ok || err == nil && got == want) && (ok || errors.Is(err, vfio.ErrNoIOVA)),
				"Alloc(%#x, %#x) = %#x, %v; model %#x, %v", size, align, got, err, want, ok)
			if ok {
				held = append(held, block{got, size})
			}
		}
		free := func(t *rapid.T) {
			if len(held) == 0 {
				t.Skip("nothing to free")
			}
			i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
			b := held[i]
			held = slices.Delete(held, i, i+1)
			err := a.Free(b.iova, b.size)
			must.Hold(t, err == nil, "Free(%#x, %#x): %v", b.iova, b.size, err)
			// Counted: the last granule may be the last number there is.
			for i := range (b.size + m.granule - 1) / m.granule {
				m.free[b.iova/m.granule+i] = true
			}
		}
		freeForeign := func(t *rapid.T) {
			iova := rapid.Uint64().Draw(t, "iova")
			for _, b := range held {
				if b.iova == iova {
					t.Skip("not foreign")
				}
			}
			err := a.Free(iova, m.granule)
			must.Hold(t, errors.Is(err, vfio.ErrNotMapped), "Free(%#x): %v", iova, err)
		}
		t.Repeat(map[string]func(*rapid.T){"alloc": alloc, "free": free, "free foreign": freeForeign})
	})
}

func TestIOVAConcurrent(t *testing.T) {
	const first, last, workers, rounds = 0x10000, 0x8ffff, 8, 300
	a := vfio.NewIOVAAllocator([]vfio.IOVARange{{first, last}}, 4096)
	var mu sync.Mutex
	owner := map[uint64]int{} // by page
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(w)))
			for range rounds {
				size := 1 + r.Uint64N(6*4096)
				iova, err := a.Alloc(size, 0)
				if err != nil {
					should.Fail(t, err, vfio.ErrNoIOVA)
					continue
				}
				mu.Lock()
				for p := iova; p < iova+size; p += 4096 {
					if owner[p] != 0 || p < first || p > last {
						t.Errorf("page %#x given to %d and %d", p, owner[p]-1, w)
					}
					owner[p] = w + 1
				}
				mu.Unlock()
				mu.Lock()
				for p := iova; p < iova+size; p += 4096 {
					delete(owner, p)
				}
				mu.Unlock()
				should.OK(t, a.Free(iova, size))
			}
		})
	}
	all.Wait()
	should.Give(a.Alloc(last-first+1, 0))(t, first, "not all came back")
}

// TestDivideIOVAs: the parts do not overlap, are of one size,
// and lie in the ranges.
func TestDivideIOVAs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const granule = 4096
		var ranges []vfio.IOVARange
		at := rapid.Uint64Range(0, 1<<20).Draw(t, "start")
		for range rapid.IntRange(1, 5).Draw(t, "ranges") {
			size := rapid.Uint64Range(1, 1<<rapid.IntRange(13, 38).Draw(t, "bits")).Draw(t, "size")
			ranges = append(ranges, vfio.IOVARange{First: at, Last: at + size - 1})
			at += size + rapid.Uint64Range(1, 1<<20).Draw(t, "gap")
		}
		if rapid.Bool().Draw(t, "to the end") {
			ranges = append(ranges, vfio.IOVARange{First: max(at, 1<<40), Last: ^uint64(0)})
		}
		of := rapid.IntRange(2, 9).Draw(t, "parts")
		var all []vfio.IOVARange
		var sizes []uint64
		for part := range of {
			var size uint64
			for _, r := range vfio.DivideIOVAs(ranges, part, of, granule) {
				must.Hold(t, r.First%granule == 0 && r.Last%granule == granule-1 && r.Last >= r.First, "part %d has %#x", part, r)
				if !slices.ContainsFunc(ranges, func(x vfio.IOVARange) bool { return r.First >= x.First && r.Last <= x.Last }) {
					t.Fatalf("%#x is not in %#x", r, ranges)
				}
				all = append(all, r)
				size += r.Last - r.First + 1
			}
			sizes = append(sizes, size)
		}
		slices.SortFunc(all, func(a, b vfio.IOVARange) int { return cmp.Compare(a.First, b.First) })
		for i := 1; i < len(all); i++ {
			must.Hold(t, all[i].First > all[i-1].Last, "%#x and %#x overlap", all[i-1], all[i])
		}
		must.Be(t, slices.Min(sizes), slices.Max(sizes), "parts of %#x bytes", sizes)
	})
}

func TestDivideByOne(t *testing.T) {
	ranges := []vfio.IOVARange{{First: 1, Last: 99}}
	should.Same(t, vfio.DivideIOVAs(ranges, 0, 1, 4096), ranges)
}
