package porttest

import (
	"testing"
	"time"
)

// PerFrame runs f, which moves burst frames, and reports time and cycles for each.
func PerFrame(b *testing.B, burst int, f func()) {
	b.Helper()
	b.ReportAllocs()
	clock := cycleTime()
	n := 0
	for b.Loop() {
		f()
		n += burst
	}
	each := float64(b.Elapsed().Nanoseconds()) / float64(n)
	b.ReportMetric(each/clock, "cycles/frame")
	b.ReportMetric(each, "ns/frame")
}

var product uint64 = 3

// cycleTime measures how long a cycle is, in nanoseconds: a multiplication that waits for the
// one before takes three of them on the processors of the last twenty years.
func cycleTime() float64 {
	const n = 1 << 23
	best, x := time.Hour, product
	for range 5 {
		start := time.Now()
		for range n {
			x *= 0x9e3779b97f4a7c15
		}
		best = min(best, time.Since(start))
	}
	product = x
	return float64(best.Nanoseconds()) / n / 3
}
