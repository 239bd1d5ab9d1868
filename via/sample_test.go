package via_test

import (
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
)

// TestSample: n subjects take each element once, and a long run takes of each subject what is left.
func TestSample(t *testing.T) {
	const n = 4
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	var together []int
	for i := range n {
		t.Setenv(soak.Variable, "")
		ordinary := sample(all, i, n)
		t.Setenv(soak.Variable, "1")
		both := slices.Sorted(slices.Values(slices.Concat(ordinary, sample(all, i, n))))
		if !slices.Equal(both, all) {
			t.Errorf("subject %d: an ordinary and a long run take %v, want each of %v once", i, both, all)
		}
		together = append(together, ordinary...)
	}
	slices.Sort(together)
	if !slices.Equal(together, all) {
		t.Errorf("%d subjects take %v, want each of %v once", n, together, all)
	}
}
