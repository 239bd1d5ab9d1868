package via_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// BenchmarkLatency reports the mean time from a post to the receive at the other end, as half a round
// trip: two emulated NICs on a memory wire, engines inline, of which one goroutine does all the work.
func BenchmarkLatency(b *testing.B) {
	for _, size := range []int{64, 4096, 8192, 65536} {
		b.Run(sizeName(size), func(b *testing.B) {
			x, y := conform.OnMemory(b, "", via.Options{})
			p := newPingPong(b, conform.NewWorld(b, x, y), size)
			for range 100 {
				p.round(b)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.round(b)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/one-way")
		})
	}
}
