package breakdown

import (
	"context"
	"runtime"
	"time"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// Limits hold what the machine takes at least.
type Limits struct {
	// Copies of bytes that both cores' caches may hold.
	Copies []Copy `json:"copies"`
	// Between two processes, the same message as bench compare measures it: on each
	// pair of cores, for each distance that these were at.
	Between []Between `json:"between"`
}

// Between is the same message between two processes that share memory.
type Between struct {
	bench.Pair
	// Crossing is the time in ns in which a cache line goes from one core to the
	// other; 0 without two cores.
	Crossing float64 `json:"crossing_ns"`
	Rounds   int     `json:"rounds"`
	// P50 in ns and its lowest and highest in a round, and the tail.
	P50       float64    `json:"p50_ns"`
	P50Spread [2]float64 `json:"p50_spread_ns"`
	P999      float64    `json:"p999_ns"`
}

// Copy says how fast memory is copied.
type Copy struct {
	Bytes int     `json:"bytes"`
	Ns    float64 `json:"ns"`
	GBs   float64 `json:"gb_per_s"` // 10^9 bytes a second
}

// leastCopies is the number of times that each size is measured at least.
const leastCopies = 5

// copySizes in bytes.
var copySizes = []int{64, 4 << 10, 8 << 10, 64 << 10, 1 << 20, 16 << 20}

// The message between two processes is measured in rounds, as one measurement may be
// disturbed; each takes what bench takes at least, or more.
const (
	betweenRounds = 5
	leastRound    = time.Millisecond
)

func (o *Options) limits(ctx context.Context) (l Limits, err error) {
	each := o.For / Parts
	err = bench.OnCore(ctx, o.core(), func() error {
		for _, n := range copySizes {
			c, err := measureCopy(ctx, n, each/time.Duration(len(copySizes)))
			if err != nil {
				return err
			}
			l.Copies = append(l.Copies, c)
		}
		return nil
	})
	if err != nil {
		return l, err
	}
	o.Progress.Step()
	pairs := o.Pairs
	if len(pairs) == 0 {
		pairs = []bench.Pair{{Cores: []int{}}}
	}
	c := bench.Comparison{Wire: bench.UsualWire, Rounds: betweenRounds, Pairs: pairs, Rows: []bench.Row{{Test: "latency", Bytes: o.Bytes}},
		For: max(each/time.Duration(betweenRounds*len(pairs)), leastRound)}
	rows, err := c.Compare(ctx)
	for i := range rows {
		l.Between = append(l.Between, between(&rows[i]))
	}
	o.Progress.Step()
	return l, err
}

// between takes from a row, which has microseconds, what is ours.
func between(r *bench.Row) Between {
	return Between{Pair: r.Pair, Crossing: r.Crossing, Rounds: r.Rounds, P50: 1e3 * r.Ours,
		P50Spread: [2]float64{1e3 * r.OursSpread[0], 1e3 * r.OursSpread[1]}, P999: 1e3 * r.Tail[bench.Us]}
}

// measureCopy copies n bytes again and again for about d.
func measureCopy(ctx context.Context, n int, d time.Duration) (Copy, error) {
	src, dst := make([]byte, n), make([]byte, n)
	for i := range src {
		src[i] = byte(i)
	}
	inner := max(1<<16/n, 1)
	var times []float64
	err := bench.Rounds(ctx, d, leastCopies, func() error {
		start := time.Now()
		for range inner {
			copy(dst, src)
		}
		times = append(times, float64(time.Since(start))/float64(inner))
		return nil
	})
	if err != nil {
		return Copy{}, err
	}
	runtime.KeepAlive(dst)
	ns := max(least(times), 0.01)
	return Copy{Bytes: n, Ns: ns, GBs: float64(n) / ns}, nil
}
