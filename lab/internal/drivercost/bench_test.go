package drivercost_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/lab/internal/drivercost"
)

// BenchmarkDriver is the driver alone: what Run measures, with the tools of go test.
func BenchmarkDriver(b *testing.B) {
	for _, batch := range []int{1, 32} {
		for _, withCQ := range []bool{false, true} {
			b.Run(fmt.Sprintf("batch-%d/cq-%v", batch, withCQ), func(b *testing.B) {
				r, err := drivercost.New(b.Context(), batch, withCQ)
				if err != nil {
					b.Fatal(err)
				}
				defer func() {
					if err := r.Close(); err != nil {
						b.Error(err)
					}
				}()
				b.ReportAllocs()
				for b.Loop() {
					if err := r.Round(); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/descriptor")
			})
		}
	}
}
