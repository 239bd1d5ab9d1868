package driver

import "testing"

// TestWidened: a count has all its bits, also while the count of halves lags behind.
func TestWidened(t *testing.T) {
	for _, want := range []uint64{0, 1, 1<<31 - 1, 1 << 31, 1<<32 - 1, 1 << 32, 3<<31 + 5, 1 << 40} {
		halves := uint32(want >> 31)
		if got := widened(halves, uint32(want)); got != want {
			t.Errorf("%#x is %#x", want, got)
		}
		if halves == 0 {
			continue
		}
		if got := widened(halves-1, uint32(want)); got != want {
			t.Errorf("%#x is %#x while the halves lag behind", want, got)
		}
	}
}
