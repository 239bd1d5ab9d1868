package driver

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestLatencyBuckets: a time is in a bucket that ends at most 1/32 above it, and quantiles are
// those of the times, as far as that goes.
func TestLatencyBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h latencyHistogram
		var times []time.Duration
		for _, ns := range rapid.SliceOfN(rapid.Int64Range(0, 1<<latencyPowers-1), 1, 200).Draw(t, "times") {
			d := time.Duration(ns >> rapid.IntRange(0, latencyPowers).Draw(t, "shift"))
			if bound := latencyBound(latencyBucket(d)); bound < d || bound-d > d>>latencyBits {
				t.Fatalf("%d ns are in a bucket up to %d", d, bound)
			}
			h.add(d)
			times = append(times, d)
		}
		slices.Sort(times)
		r := h.report()
		for _, q := range []struct {
			got     int64
			percent int
		}{{r.P50, 50}, {r.P99, 99}, {r.Max, 100}} {
			want := int64(times[(len(times)*q.percent+99)/100-1])
			if q.got < want || q.got-want > want>>latencyBits {
				t.Errorf("%d %%: %d, want %d", q.percent, q.got, want)
			}
		}
		if r.Samples != uint64(len(times)) {
			t.Errorf("%d of %d", r.Samples, len(times))
		}
	})
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, 1 << 62: latencyBuckets - 1} {
		if got := latencyBucket(d); got != want {
			t.Errorf("%d is in bucket %d, want %d", d, got, want)
		}
	}
	if r := new(latencyHistogram).report(); r != nil {
		t.Errorf("%+v", r)
	}
}
