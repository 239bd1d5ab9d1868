package benchcmd

import (
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// TestMarkdown: a line for each peer, beside ours, and one for ours alone; ratios in which we win are bold.
func TestMarkdown(t *testing.T) {
	figure := func(f bench.Figure) *bench.Figure { return &f }
	latency := func(crossing bench.Figure, who, statistic string, value bench.Figure) bench.Row {
		return bench.Row{Test: "latency", Bytes: 4096, Crossing: crossing, Who: who, Statistic: statistic, Value: figure(value), Unit: "us"}
	}
	peer := func(r bench.Row, ratio, tail *bench.Figure) bench.Row {
		r.Ratio, r.TailRatio = ratio, tail
		return r
	}
	rate := bench.Row{Test: "rate", Bytes: 64, Pair: bench.Pair{Proximity: "two cores"}, Crossing: 68, Who: bench.Us, Value: figure(14.5e6), Unit: "messages/s"}
	faster, slower, failed := rate, rate, rate
	faster.Who, faster.Value, faster.Ratio = "ucx", figure(19.3e6), figure(0.75)
	slower.Who, slower.Value, slower.Ratio = "unix", figure(3.5e6), figure(4.14)
	failed.Who, failed.Value, failed.Failure = "tcp", nil, "gone"
	alone := bench.Row{Test: "frames", Bytes: 64, Crossing: 68, Who: bench.Us, Value: figure(2), Unit: "frames/s"}
	r := compareReport{
		Rows: []bench.Row{
			latency(27, bench.Us, "p50", 0.265),
			peer(latency(27, "ucx", "p50", 0.692), figure(0.383), figure(1.1)),
			peer(latency(27, "libfabric", "mean", 0.2), figure(1.32), nil),
			latency(234, bench.Us, "p50", 0.378),
			peer(latency(234, "ucx", "p50", 0.378), figure(1), figure(0.99)),
			rate, faster, slower, failed, alone,
		},
		conditions: conditions{markdown: true, Environment: bench.Environment{
			Time: "2026-11-30T07:00:00Z", Commit: "820e9608", Processor: "AMD EPYC", Cores: []int{0, 1}}},
	}
	const want = `| Test | Size | Crossing | Ours | Peer | Peer's | Ratio | p99.9's ratio |
|---|---|---|---|---|---|---|---|
| latency | 4 KiB | 27 ns | 0.265 us p50 | ucx | 0.692 us p50 | **0.383** | 1.1 |
| latency | 4 KiB | 27 ns | 0.265 us p50 | libfabric | 0.2 us mean | 1.32 | - |
| latency | 4 KiB | 234 ns | 0.378 us p50 | ucx | 0.378 us p50 | 1 | 0.99 |
| rate | 64 B | 68 ns, two cores | 14.50M messages/s | ucx | 19.30M messages/s | 0.75 | - |
| rate | 64 B | 68 ns, two cores | 14.50M messages/s | unix | 3.50M messages/s | **4.14** | - |
| rate | 64 B | 68 ns, two cores | 14.50M messages/s | tcp | - | - | - |
| frames | 64 B | 68 ns | 2 frames/s | - | - | - | - |

rate, 64 B: tcp: gone
- Commit 820e9608; AMD EPYC, 2 cores; 2026-11-30.
`
	var b strings.Builder
	if err := printed(&b, &r.conditions, &r); err != nil || b.String() != want {
		t.Errorf("%v\n%s\nwant\n%s", err, b.String(), want)
	}
}
