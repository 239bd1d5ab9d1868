package kernel

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/internal/round"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestOldKernel tells neither ranges nor how many mappings are left.
func TestOldKernel(t *testing.T) {
	k, h := openFake(t, machine(t))
	k.iommu.old = true
	d := mustOpen(t, h, "pci:"+nic+"?backend=group")
	got, err := d.IOVARanges()
	want := []vfio.IOVARange{{First: 0, Last: 0xfedfffff}, {First: 0xfef00000, Last: 1<<39 - 1}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if n, ok, err := d.DMAAvailable(); n != 0 || ok || err != nil {
		t.Errorf("%d mappings left, told %v, %v", n, ok, err)
	}
}

// TestManyRanges: more than are asked for at first.
func TestManyRanges(t *testing.T) {
	for _, b := range backends[:2] {
		t.Run(b, func(t *testing.T) {
			k, h := openFake(t, machine(t))
			k.iommu.ranges = nil
			for i := range uint64(500) {
				k.iommu.ranges = append(k.iommu.ranges, iovaRange{start: i << 24, last: i<<24 | 0xffffff>>1})
			}
			d := mustOpen(t, h, "pci:"+nic+"?backend="+b)
			got, err := d.IOVARanges()
			if err != nil || len(got) != 500 || got[499].First != 499<<24 {
				t.Errorf("%d ranges, %v", len(got), err)
			}
		})
	}
}

// TestLargePages: what the IOMMU cannot map in smaller pieces is refused here.
func TestLargePages(t *testing.T) {
	k, h := openFake(t, machine(t))
	k.iommu.pages = 1<<16 | 1<<21
	d := mustOpen(t, h, "pci:"+nic+"?backend=group")
	if err := d.MapDMA(alloc(t, 1<<16), 0x1000, both); !errors.Is(err, vfio.ErrMisaligned) {
		t.Error(err)
	}
}

// TestShares: the parts of a group's functions do not overlap, are of one size,
// and lie in the ranges.
func TestShares(t *testing.T) {
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
		of := rapid.IntRange(2, 9).Draw(t, "functions")
		var all []vfio.IOVARange
		var sizes []uint64
		for part := range of {
			var size uint64
			for _, r := range shareOf(ranges, part, of, granule) {
				if r.First%granule != 0 || r.Last%granule != granule-1 || r.Last < r.First {
					t.Fatalf("part %d has %#x", part, r)
				}
				if !slices.ContainsFunc(ranges, func(x vfio.IOVARange) bool { return r.First >= x.First && r.Last <= x.Last }) {
					t.Fatalf("%#x is not in %#x", r, ranges)
				}
				all = append(all, r)
				size += r.Last - r.First + 1
			}
			sizes = append(sizes, size)
		}
		slices.SortFunc(all, byFirst)
		for i := 1; i < len(all); i++ {
			if all[i].First <= all[i-1].Last {
				t.Fatalf("%#x and %#x overlap", all[i-1], all[i])
			}
		}
		if slices.Min(sizes) != slices.Max(sizes) {
			t.Fatalf("parts of %#x bytes", sizes)
		}
	})
}

func TestShareOfOne(t *testing.T) {
	ranges := []vfio.IOVARange{{First: 1, Last: 99}}
	if got := shareOf(ranges, 0, 1, 4096); !slices.Equal(got, ranges) {
		t.Errorf("%v", got)
	}
}

// FuzzParseIOMMUInfo and FuzzParseRegion: the kernel is trusted, but a
// structure that is newer than this program must not be misread.
func FuzzParseIOMMUInfo(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseIOMMUInfo(b)
		if err != nil {
			if !errors.Is(err, errBadAnswer) {
				t.Errorf("error %v", err)
			}
			return
		}
		if l.available < unknown || l.page&(l.page-1) != 0 {
			t.Errorf("%+v", l)
		}
		for i, r := range l.ranges {
			if r.First > r.Last || i > 0 && r.First < l.ranges[i-1].First {
				t.Errorf("ranges %#x", l.ranges)
			}
		}
	})
}

func FuzzParseRegion(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRegion(3, b)
		if err != nil {
			if !errors.Is(err, errBadAnswer) {
				t.Errorf("error %v", err)
			}
			return
		}
		if r.Index != 3 {
			t.Errorf("index %d", r.Index)
		}
		for _, a := range r.Sparse {
			if a.Size == 0 || a.Offset > r.Size || a.Offset+a.Size > round.Up(r.Size, uint64(os.Getpagesize())) {
				t.Errorf("area %+v of %#x bytes", a, r.Size)
			}
		}
	})
}

// TestAskWithCaps: the kernel wants more room, changes its mind, or never has
// enough.
func TestAskWithCaps(t *testing.T) {
	request := make([]byte, 16)
	request[0] = 16
	for _, tt := range []struct {
		name  string
		wants []uint32
		err   error
		size  int
	}{
		{"fits", []uint32{16}, nil, 16},
		{"needs more", []uint32{64, 64}, nil, 64},
		{"needs more twice", []uint32{64, 128, 100}, nil, 128},
		{"never has enough", []uint32{64, 128, 256, 512, 1024}, errBadAnswer, 0},
		{"wants everything", []uint32{1 << 31}, errBadAnswer, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			asked := 0
			b, err := askWithCaps(request, func(b []byte) error {
				if got := int(b[0]) | int(b[1])<<8; got != len(b) {
					t.Errorf("says %d bytes of %d", got, len(b))
				}
				w := tt.wants[asked]
				b[0], b[1], b[2], b[3] = byte(w), byte(w>>8), byte(w>>16), byte(w>>24)
				asked++
				return nil
			})
			if !errors.Is(err, tt.err) || len(b) != tt.size {
				t.Errorf("%d bytes, %v", len(b), err)
			}
		})
	}
}
