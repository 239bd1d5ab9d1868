package via_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// BenchmarkPlacement is BenchmarkLatency with the delivery policy at the host,
// where every transfer costs a register write, and one goroutine that polls both
// NICs. x-nic is the ratio to the same policy in the NIC, in the same run.
func BenchmarkPlacement(b *testing.B) {
	for _, size := range []int{64, 8192, 65536} {
		b.Run(sizeName(size), func(b *testing.B) {
			x, y := conform.OnMemory(b, "", via.Options{Policy: via.Policy{Name: via.DefaultHostPolicy, At: via.AtHost}})
			p := newPingPong(b, conform.NewWorld(b, x, y), size)
			for range 100 {
				p.bothRound(b)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.bothRound(b)
			}
			p50 := median(1000, func() { p.bothRound(b) }) / 2
			u, v := conform.OnMemory(b, "", via.Options{Policy: via.Policy{Name: via.DefaultHostPolicy}})
			q := newPingPong(b, conform.NewWorld(b, u, v), size)
			inNIC := median(1000, func() { q.bothRound(b) }) / 2
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/one-way")
			b.ReportMetric(p50, "p50-ns/one-way")
			b.ReportMetric(p50/inNIC, "x-nic")
		})
	}
}
