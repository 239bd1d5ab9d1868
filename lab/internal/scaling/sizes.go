package scaling

import (
	"context"
	"time"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// sizeCounts are the sizes of messages in bytes; see Curves.
var sizeCounts = []int{0, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20}

// rounds is the number of times that each size is measured.
const rounds = 3

// sizes measures one-way latencies, p50, against size over a wire.
func (p *Plan) sizes(ctx context.Context, wire string) (costs []Point, err error) {
	for _, n := range sizeCounts {
		if n > p.MostBytes {
			continue
		}
		t := bench.Task{Wire: wire, Cores: p.Cores, Spec: bench.Spec{Test: bench.Latency, Role: bench.Source, Bytes: n,
			VIs: 1, Window: 2, Reliability: "reliable-delivery", Nanoseconds: int64(max(p.For/rounds, 10*time.Millisecond)), Core: -1}}
		var medians []float64
		for range rounds {
			r, err := bench.Run(ctx, t)
			if err != nil {
				return nil, err
			}
			medians = append(medians, r.Source.Percentile(50))
		}
		costs = append(costs, spread(n, medians))
		p.Progress.Step()
	}
	return costs, nil
}
