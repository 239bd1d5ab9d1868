package channel_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// The benchmarks run two emulated NICs on a memory wire, engines inline if nothing else is
// said: one goroutine does the work of both applications and both NICs. ci/bench/pgo runs them.

// BenchmarkCell is one cell from store to look, one way.
func BenchmarkCell(b *testing.B) {
	x, y := openPair(b, "", channel.Options{})
	b.ReportAllocs()
	for b.Loop() {
		must.OK(b, x.Send(channel.High, 0, 5))
		m, err := y.Poll()
		for err == via.ErrNotDone {
			m, err = y.Poll()
		}
		if err != nil || m.Err != nil {
			b.Fatal(m, err)
		}
		must.OK(b, y.Release(m))
	}
}

// BenchmarkBulk is messages of almost a double page, at low priority.
func BenchmarkBulk(b *testing.B) {
	for _, options := range []string{"", "&engine=thread"} {
		b.Run("engine"+options, func(b *testing.B) {
			nic, other := openBoth(b, options)
			o := channel.Options{PageSize: 16384}
			clients, servers := openPairs(b, nic, other, 1, o, o)
			x, y := clients[0], servers[0]
			const size = 1000 * channel.Word
			b.SetBytes(size)
			sent, taken := 0, 0
			for b.Loop() {
				for sent < taken+3 {
					if err := x.Send(channel.Low, 0, size/channel.Word); err == via.ErrQueueFull {
						break
					} else if err != nil {
						b.Fatal(err)
					}
					sent++
				}
				for m := (channel.PDU{}); m.Length == 0; {
					nic.Poll()
					var err error
					if m, err = y.Poll(); err != nil && err != via.ErrNotDone || m.Err != nil {
						b.Fatal(m, err)
					}
					if m.Length > 0 {
						must.OK(b, y.Release(m))
					}
				}
				taken++
			}
			cells := float64(b.N) * float64((size+datasheet.CellPayload-1)/datasheet.CellPayload)
			b.ReportMetric(cells/b.Elapsed().Seconds()/1e6, "Mcells/s")
		})
	}
}
