package breakdown

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// Limits are what the machine takes at least.
type Limits struct {
	// CacheLine is the time in ns in which a cache line goes from one of the two
	// cores to the other; 0 without two cores.
	CacheLine float64 `json:"cache_line_ns"`
	// Copies of bytes that both cores' caches may hold.
	Copies []Copy `json:"copies"`
	// Shared is the p50 in ns of the same message between two processes over shm,
	// with its tail.
	Shared     float64 `json:"shm_p50_ns"`
	SharedTail float64 `json:"shm_p999_ns"`
}

// Copy is how fast memory is copied.
type Copy struct {
	Bytes int     `json:"bytes"`
	Ns    float64 `json:"ns"`
	GBs   float64 `json:"gb_per_s"` // 10^9 bytes a second
}

// copySizes in bytes.
var copySizes = []int{64, 4 << 10, 8 << 10, 64 << 10, 1 << 20, 16 << 20}

func (o *Options) limits(ctx context.Context) (l Limits, err error) {
	each := o.For / Parts
	core := -1
	if len(o.Cores) > 0 {
		core = o.Cores[0]
	}
	if len(o.Cores) > 1 {
		if l.CacheLine, err = cacheLine(ctx, o.Cores[0], o.Cores[1], each); err != nil {
			return l, err
		}
	}
	o.step()
	err = bench.OnCore(core, func() error {
		for _, n := range copySizes {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			l.Copies = append(l.Copies, measureCopy(n, each/time.Duration(len(copySizes))))
		}
		return nil
	})
	if err != nil {
		return l, err
	}
	o.step()
	t := bench.Task{Wire: "shm", Cores: o.Cores, Spec: bench.Spec{Test: bench.Latency, Role: bench.Source, Bytes: o.Bytes,
		VIs: 1, Window: 2, Reliability: "reliable-delivery", Nanoseconds: int64(each), Core: -1}}
	r, err := bench.Run(ctx, t)
	if err != nil {
		return l, err
	}
	l.Shared, l.SharedTail = 1e3*r.Source.Percentile(50), 1e3*r.Source.Percentile(99.9)
	o.step()
	return l, nil
}

// measureCopy copies n bytes again and again for about d.
func measureCopy(n int, d time.Duration) Copy {
	src, dst := make([]byte, n), make([]byte, n)
	for i := range src {
		src[i] = byte(i)
	}
	inner := max(1<<16/n, 1)
	var times []float64
	for end := time.Now().Add(d); len(times) < 5 || time.Now().Before(end); {
		start := time.Now()
		for range inner {
			copy(dst, src)
		}
		times = append(times, float64(time.Since(start))/float64(inner))
	}
	runtime.KeepAlive(dst)
	ns := max(least(times), 0.01)
	return Copy{Bytes: n, Ns: ns, GBs: float64(n) / ns}
}

// ball is a cache line that two cores throw to each other.
type ball struct {
	_ [64]byte
	n atomic.Uint64
	_ [64]byte
}

// throws is how often the ball goes there and back between two looks at the clock.
const throws = 2000

// cacheLine is the time of one throw in ns.
func cacheLine(ctx context.Context, here, there int, d time.Duration) (float64, error) {
	var b ball
	var stop atomic.Bool
	returned := make(chan error, 1)
	go func() {
		returned <- bench.OnCore(there, func() error {
			for !stop.Load() {
				if n := b.n.Load(); n%2 == 1 {
					b.n.Store(n + 1)
				}
			}
			return nil
		})
	}()
	var times []float64
	err := bench.OnCore(here, func() error {
		for end := time.Now().Add(d); len(times) < 10 || time.Now().Before(end); {
			start := time.Now()
			for range throws {
				next := b.n.Add(1) + 1
				for looks := 1; b.n.Load() != next; looks++ {
					// The other side may have failed.
					if looks%(1<<20) == 0 && (ctx.Err() != nil || len(returned) > 0) {
						return context.Cause(ctx)
					}
				}
			}
			times = append(times, float64(time.Since(start))/(2*throws))
		}
		return nil
	})
	stop.Store(true)
	if back := <-returned; err == nil {
		err = back
	}
	if err != nil || len(times) == 0 {
		return 0, err
	}
	return least(times), nil
}
