package drivercost

import (
	"fmt"
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	parts := 0
	r := must.Get(Run(t.Context(), bench.Local{For: 4 * time.Millisecond, Pin: true}, func() { parts++ }))(t)
	if parts != Parts || len(r.Costs) != 4 {
		t.Errorf("%d parts, %+v", parts, r)
	}
	for _, c := range r.Costs {
		for _, v := range []bench.Figure{c.Ns, c.Median, c.Mock} {
			if !(v > 0) || math.IsInf(float64(v), 0) {
				t.Errorf("%+v", c)
			}
		}
		if c.Median < c.Ns || c.Batch != 1 && c.Batch != MaxBatch {
			t.Errorf("%+v", c)
		}
	}
}

// TestRound: each round posts, rings and takes back what it says, without an
// allocation; the device is told of all of it.
func TestRound(t *testing.T) {
	t.Setenv("TRAPEZE_TELEMETRY", "off") // its start allocates
	for _, batch := range []int{1, 2, MaxBatch} {
		for _, withCQ := range []bool{false, true} {
			t.Run(fmt.Sprint(batch, withCQ), func(t *testing.T) {
				r := must.Get(New(t.Context(), batch, withCQ))(t)
				const rounds = 200 // around the rings
				should.Be(t, testing.AllocsPerRun(rounds-1, func() {
					must.OK(t, r.Round())
				}), 0, "allocations")
				doorbell := r.device.doorbells.Bytes()[datasheet.EndpointPage(r.vi.Number())+datasheet.DoorbellSend:]
				should.Be(t, datasheet.LoadIndex(datasheet.IndexAt(doorbell)), uint32(rounds*batch), "the doorbell says")
				should.OK(t, r.Close())
			})
		}
	}
}

// BenchmarkDriver is the driver alone: what Run measures, with the tools of go test.
func BenchmarkDriver(b *testing.B) {
	for _, batch := range []int{1, 32} {
		for _, withCQ := range []bool{false, true} {
			b.Run(fmt.Sprintf("batch-%d/cq-%v", batch, withCQ), func(b *testing.B) {
				r := must.Get(New(b.Context(), batch, withCQ))(b)
				defer func() {
					should.OK(b, r.Close())
				}()
				b.ReportAllocs()
				for b.Loop() {
					must.OK(b, r.Round())
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/descriptor")
			})
		}
	}
}
