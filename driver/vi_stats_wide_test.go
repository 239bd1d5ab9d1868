package driver

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// TestWidened: a count has all its bits, also while the count of halves lags behind.
func TestWidened(t *testing.T) {
	for _, want := range []uint64{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 3<<31 + 5, 1 << 40} {
		halves := uint32(want >> 31)
		should.Be(t, widened(halves, uint32(want)), want)
		if halves == 0 {
			continue
		}
		should.Be(t, widened(halves-1, uint32(want)), want, "is while the halves lag behind")
	}
}
