package dmaspace_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/dmaspace"
)

func TestUnmap(t *testing.T) {
	fill := func(t *testing.T) *dmaspace.Space {
		s := newSpace(t, dmaspace.DefaultLimits())
		fd := memfd(t, 16, 0)
		for _, r := range []dmaspace.Range{
			{Address: 0x1000, Size: 2 * page}, {Address: 0x3000, Size: page}, {Address: 0x8000, Size: page},
			{Address: math.MaxUint64 - page + 1, Size: page},
		} {
			r.Flags = both
			mapped(t, s, r, fd)
		}
		mapped(t, s, dmaspace.Range{Address: 0xa000, Size: page, Flags: vfio.DMARead}, -1)
		return s
	}
	tests := []struct {
		name          string
		first, last   uint64
		ranges        int
		bytes, memory uint64
		err           error
	}{
		{"exactly one", 0x1000, 0x2fff, 1, 2 * page, 2 * page, nil},
		{"two neighbours", 0x1000, 0x3fff, 2, 3 * page, 3 * page, nil},
		{"more than there is", 0, 0x9fff, 3, 4 * page, 4 * page, nil},
		{"without memory", 0xa000, 0xafff, 1, page, 0, nil},
		{"nothing", 0x4000, 0x7fff, 0, 0, 0, nil},
		{"nothing far away", 1 << 40, 1<<48 - 1, 0, 0, 0, nil},
		{"lower half", 0, 1<<63 - 1, 4, 5 * page, 4 * page, nil},
		{"upper half", 1 << 63, math.MaxUint64, 1, page, page, nil},
		{"all", 0, math.MaxUint64, 5, 6 * page, 5 * page, nil},
		{"first half of one", 0x1000, 0x1fff, 0, 0, 0, dmaspace.ErrCut},
		{"second half of one", 0x2000, 0x3fff, 0, 0, 0, dmaspace.ErrCut},
		{"cut at the end", 0, 0x1fff, 0, 0, 0, dmaspace.ErrCut},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := fill(t)
			ranges, bytes, memory, err := s.Inside(tt.first, tt.last)
			should.Hold(t, ranges == tt.ranges && bytes == tt.bytes && memory == tt.memory && errors.Is(err, tt.err),
				"Inside: %d, %#x, %#x, %v", ranges, bytes, memory, err)
			should.Fail(t, s.Unmap(tt.first, tt.last), tt.err, "Unmap")
			left, _ := s.Size()
			should.Hold(t, left == 5-tt.ranges, "%d ranges are left", left)
			ranges, _, _, err = s.Inside(tt.first, tt.last)
			should.Hold(t, err != nil || ranges == 0, "%d ranges are still there", ranges)
		})
	}
}

// TestMany maps as many ranges as a client may, in no order, and takes them away
// again in another.
func TestMany(t *testing.T) {
	s := newSpace(t, dmaspace.DefaultLimits())
	const n = 65535
	fd := memfd(t, n, 0)
	random := rand.New(rand.NewPCG(1, 2))
	for _, i := range random.Perm(n) {
		at := uint64(i) * page
		mapped(t, s, dmaspace.Range{Address: at, Size: page, Offset: at, Flags: both}, fd)
	}
	_, _, err := s.Map(dmaspace.Range{Address: 1 << 40, Size: page, Flags: both}, fd)
	should.Hold(t, errors.Is(err, dmaspace.ErrFull), "one more: %v", err)
	holds(t, s, n, 1)
	for _, i := range random.Perm(n) {
		at := uint64(i) * page
		must.OK(t, s.Unmap(at, at+page-1))
	}
}
