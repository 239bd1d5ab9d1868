package bench

import (
	"slices"
	"testing"
)

// TestQuietest: busy cores are left alone, cores that differ little are alike.
func TestQuietest(t *testing.T) {
	for _, tt := range []struct {
		idle []uint64 // during the look, of cores 0, 1, ...
		want []int
	}{
		{[]uint64{10, 10, 10, 10}, []int{0, 1}},
		{[]uint64{0, 10, 10, 10}, []int{1, 2}},
		{[]uint64{10, 0, 10, 0}, []int{0, 2}},
		{[]uint64{98, 100, 97, 100}, []int{0, 1}},
		{[]uint64{0, 0, 0, 0}, []int{0, 1}},
		{[]uint64{5, 0, 4, 9}, []int{0, 3}},
	} {
		before, after := map[int]uint64{}, map[int]uint64{}
		var have []int
		for c, n := range tt.idle {
			have = append(have, c)
			before[c], after[c] = 1000, 1000+n
		}
		if got := quietest(have, before, after, 2); !slices.Equal(got, tt.want) {
			t.Errorf("idle %v: %v, want %v", tt.idle, got, tt.want)
		}
	}
	if got := quietest([]int{3, 5, 7}, nil, nil, 2); !slices.Equal(got, []int{3, 5}) {
		t.Errorf("without /proc/stat: %v", got)
	}
	for c := range idleTicks() {
		if c < 0 {
			t.Error("a core without a number")
		}
	}
}
