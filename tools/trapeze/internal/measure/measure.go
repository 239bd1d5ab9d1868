// Package measure times messages between two connected ends that one goroutine
// drives: what is measured is the path through the NICs, without a scheduler in
// it.
package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/trapeze-nic/trapeze/via"
)

// longest one-way time that is told apart from longer ones.
const longest = 10 * time.Second

// checkEvery is after how many looks in vain a wait looks at the clock.
const checkEvery = 1 << 12

// Latency times round trips of n-byte messages between a and b for about the
// given time, one at least, after as many unmeasured ones as warm everything up, and returns
// halves of round trips in nanoseconds.
func Latency(ctx context.Context, a, b *via.Conn, n int, budget time.Duration) (*hdrhistogram.Histogram, error) {
	h := hdrhistogram.New(1, int64(longest), 3)
	warm := time.Now().Add(budget / 10)
	end := warm.Add(budget)
	for {
		start := time.Now()
		if start.After(end) && h.TotalCount() > 0 {
			return h, ctx.Err()
		}
		if err := burst(ctx, a, b, n, 1, nil); err != nil {
			return nil, err
		}
		if err := burst(ctx, b, a, n, 1, nil); err != nil {
			return nil, err
		}
		if start.After(warm) {
			half := time.Since(start) / 2
			// Within the range, so that there can be no error.
			_ = h.RecordValue(int64(min(max(half, 1), longest)))
		}
	}
}

// stream is the number of messages of a stream between two looks at the clock.
const stream = 128

// Bandwidth streams n-byte messages from a to b for about the given time and
// returns how many bytes arrived and how long that took.
func Bandwidth(ctx context.Context, a, b *via.Conn, n int, budget time.Duration) (bytes uint64, d time.Duration, err error) {
	for start := time.Now(); d < budget; d = time.Since(start) {
		if err := burst(ctx, a, b, n, stream, nil); err != nil {
			return 0, 0, err
		}
		bytes += stream * uint64(n)
	}
	return bytes, d, nil
}

// BurstTimes sends count n-byte messages from a to b, posted one behind the other, and returns when all have arrived:
// how long each took, from when it was posted.
func BurstTimes(ctx context.Context, a, b *via.Conn, n, count int) ([]time.Duration, error) {
	took := make([]time.Duration, count)
	return took, burst(ctx, a, b, n, count, took)
}

// burst is BurstTimes, and notes the times in took, unless that is nil.
func burst(ctx context.Context, a, b *via.Conn, n, count int, took []time.Duration) error {
	posted, came, began := 0, 0, time.Now()
	for looks := 1; came < count; looks++ {
		if posted < count {
			buf, err := a.TryAcquire()
			if err != nil {
				return err
			}
			if buf != nil {
				if took != nil {
					took[posted] = -time.Since(began)
				}
				if err := a.Post(n); err != nil {
					return err
				}
				posted++
				looks = 0
				continue
			}
		}
		m, err := b.TryReceive()
		if err != nil {
			return err
		}
		switch {
		case m != nil:
			if len(m) != n {
				return fmt.Errorf("a message of %d bytes arrived with %d", n, len(m))
			}
			if err := b.Release(); err != nil {
				return err
			}
			if took != nil {
				took[came] += time.Since(began)
			}
			looks = 0
			came++
		case looks%checkEvery == 0 && ctx.Err() != nil:
			return context.Cause(ctx)
		case looks > 1: // mostly the receiver alone need be polled
			a.Poll()
		}
	}
	return nil
}
