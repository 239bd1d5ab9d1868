package bench

import (
	"context"
	"sync/atomic"
	"time"
)

// ball is a cache line that two cores throw to each other.
type ball struct {
	_ [64]byte
	n atomic.Uint64
	_ [64]byte
}

// throws is the number of times that the ball goes there and back between two looks at the clock.
const throws = 50

// Crossing is the time in ns in which a cache line goes from one of two cores to the
// other, in the median over about d; 0 unless there are two.
//
// It says where the two really are. A virtual machine's kernel does not know that: the
// host puts virtual processors where it likes, and elsewhere a second later.
func Crossing(ctx context.Context, cores []int, d time.Duration) (float64, error) {
	if len(cores) < 2 || cores[0] == cores[1] {
		return 0, nil
	}
	var b ball
	var stop atomic.Bool
	returned := make(chan error, 1)
	go func() {
		returned <- OnCore(ctx, cores[1], func() error {
			for !stop.Load() {
				if n := b.n.Load(); n%2 == 1 {
					b.n.Store(n + 1)
				}
			}
			return nil
		})
	}()
	var times []float64
	err := OnCore(ctx, cores[0], func() error {
		for end := time.Now().Add(d); len(times) == 0 || time.Now().Before(end); {
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
	m, _ := Median(times)
	return float64(m), err
}
