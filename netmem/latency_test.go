package netmem

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLatencies: percentiles are those of a sorted list, to a bucket's width, however long the
// times are.
func TestLatencies(t *testing.T) {
	if p := new(latencies).percentile(50); p != 0 {
		t.Errorf("of none: %v", p)
	}
	rapid.Check(t, func(t *rapid.T) {
		var l latencies
		list := rapid.SliceOfN(rapid.Int64Range(-5, int64(2*time.Minute)), 1, 200).Draw(t, "times")
		for i, d := range list {
			l.record(time.Duration(d))
			list[i] = min(int64(longestLatency), max(1, d))
		}
		slices.Sort(list)
		for _, p := range []float64{1, 50, 99, 100} {
			at := max(1, int(p/100*float64(len(list))+0.5)) - 1
			got, want := int64(l.percentile(p)), list[at]
			if got < want || got-want > want>>latencyBits {
				t.Fatalf("p%v is %d, want %d of %v", p, got, want, list)
			}
		}
	})
}
