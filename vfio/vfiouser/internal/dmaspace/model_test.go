package dmaspace_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/dmaspace"
)

// TestModel compares a space with a list of pages.
func TestModel(t *testing.T) {
	fd := memfd(t, 1, 0)
	rapid.Check(t, func(r *rapid.T) {
		s := dmaspace.New(dmaspace.Limits{Ranges: 600, Files: 1, Bytes: page})
		defer s.Clear()
		const pages = 2000
		var owner [pages]int // range number, 0: none
		sizes := map[int]int{}
		next := 0
		inside := func(first, n int) (numbers map[int]bool, cut bool) {
			numbers = map[int]bool{}
			for i := first; i < first+n; i++ {
				numbers[owner[i]] = true
			}
			delete(numbers, 0)
			for k := range numbers {
				seen := 0
				for i := first; i < first+n; i++ {
					if owner[i] == k {
						seen++
					}
				}
				cut = cut || seen != sizes[k]
			}
			return numbers, cut
		}
		size := rapid.SampledFrom([]int{1, 1, 1, 1, 2, 3, 50, 700})
		for range rapid.IntRange(1, 1200).Draw(r, "steps") {
			first := rapid.IntRange(0, pages-1).Draw(r, "first")
			n := min(size.Draw(r, "pages"), pages-first)
			numbers, cut := inside(first, n)
			if rapid.IntRange(0, 9).Draw(r, "operation") > 0 {
				backing := -1
				if n == 1 {
					backing = fd
				}
				_, _, err := s.Map(dmaspace.Range{Address: uint64(first) * page, Size: uint64(n) * page, Flags: vfio.DMARead}, backing)
				exact := len(numbers) == 1 && !cut && sizes[only(numbers)] == n
				switch {
				case exact && err == nil:
				case len(numbers) > 0 && errors.Is(err, vfio.ErrIOVAInUse):
				case len(sizes) == 600 && errors.Is(err, dmaspace.ErrFull):
				case len(numbers) == 0 && len(sizes) < 600 && err == nil:
					next++
					sizes[next] = n
					for i := first; i < first+n; i++ {
						owner[i] = next
					}
				default:
					r.Fatalf("map %d pages at %d: %v; there are %d ranges, cut %v", n, first, err, len(numbers), cut)
				}
				continue
			}
			from, to := uint64(first)*page, uint64(first+n)*page-1
			ranges, bytes, _, err := s.Inside(from, to)
			want := 0
			for k := range numbers {
				want += sizes[k]
			}
			must.Hold(r, cut == errors.Is(err, dmaspace.ErrCut) && (cut || ranges == len(numbers) && bytes == uint64(want)*page),
				"inside %d pages at %d: %d, %#x, %v; want %d, %d pages, cut %v", n, first, ranges, bytes, err, len(numbers), want, cut)
			err = s.Unmap(from, to)
			must.Hold(r, cut == errors.Is(err, dmaspace.ErrCut), "unmap %d pages at %d: %v, cut %v", n, first, err, cut)
			if !cut {
				for k := range numbers {
					delete(sizes, k)
				}
				for i := first; i < first+n; i++ {
					owner[i] = 0
				}
			}
			got, _ := s.Size()
			must.Hold(r, got == len(sizes), "%d ranges, want %d", got, len(sizes))
		}
	})
}

func only(m map[int]bool) int {
	for k := range m {
		return k
	}
	return 0
}
