package kernel

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
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
	diff := cmp.Diff(want, got)
	should.Hold(t, err == nil && diff == "", "%v, %v", err, diff)
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
			should.Hold(t, err == nil && len(got) == 500 && got[499].First == 499<<24, "%d ranges, %v", len(got), err)
		})
	}
}

// TestLargePages: what the IOMMU cannot map in smaller pieces is refused here.
func TestLargePages(t *testing.T) {
	k, h := openFake(t, machine(t))
	k.iommu.pages = 1<<16 | 1<<21
	d := mustOpen(t, h, "pci:"+nic+"?backend=group")
	should.Fail(t, d.MapDMA(alloc(t, 1<<16), 0x1000, both), vfio.ErrMisaligned)
}

// FuzzParseIOMMUInfo and FuzzParseRegion: the kernel is trusted, but a
// structure that is newer than this program must not be misread.
func FuzzParseIOMMUInfo(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := parseIOMMUInfo(b)
		if err != nil {
			should.Fail(t, err, errBadAnswer, "error")
			return
		}
		should.Hold(t, l.available >= unknown && l.page&(l.page-1) == 0, "%+v", l)
		for i, r := range l.ranges {
			should.Hold(t, r.First <= r.Last && (i == 0 || r.First >= l.ranges[i-1].First), "ranges %#x", l.ranges)
		}
	})
}

func FuzzParseRegion(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRegion(3, b)
		if err != nil {
			should.Fail(t, err, errBadAnswer, "error")
			return
		}
		should.Be(t, r.Index, 3, "index")
		for _, a := range r.Sparse {
			should.Hold(t, a.Size != 0 && a.Offset <= r.Size && a.Offset+a.Size <= round.Up(r.Size, uint64(os.Getpagesize())),
				"area %+v of %#x bytes", a, r.Size)
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
				should.Be(t, int(b[0])|int(b[1])<<8, len(b), "says bytes")
				w := tt.wants[asked]
				b[0], b[1], b[2], b[3] = byte(w), byte(w>>8), byte(w>>16), byte(w>>24)
				asked++
				return nil
			})
			should.Hold(t, errors.Is(err, tt.err) && len(b) == tt.size, "%d bytes, %v", len(b), err)
		})
	}
}
