// Package measure times messages between two endpoints that one goroutine
// drives: what is measured is the path through the NICs, without a scheduler in
// it.
package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/endpoint"
)

// longest one-way time that is told apart from longer ones.
const longest = 10 * time.Second

// checkEvery is after how many looks in vain a wait looks at the clock.
const checkEvery = 1 << 12

// Latency times round trips of n-byte messages between a and b for about the
// given time, one at least, after as many unmeasured ones as warm everything up, and returns
// halves of round trips in nanoseconds.
func Latency(ctx context.Context, a, b *endpoint.Endpoint, n int, budget time.Duration) (*hdrhistogram.Histogram, error) {
	h := hdrhistogram.New(1, int64(longest), 3)
	warm := time.Now().Add(budget / 10)
	end := warm.Add(budget)
	for {
		start := time.Now()
		if start.After(end) && h.TotalCount() > 0 {
			return h, ctx.Err()
		}
		if err := oneWay(ctx, a, b, n); err != nil {
			return nil, err
		}
		if err := oneWay(ctx, b, a, n); err != nil {
			return nil, err
		}
		if start.After(warm) {
			half := time.Since(start) / 2
			// Within the range, so that there can be no error.
			_ = h.RecordValue(int64(min(max(half, 1), longest)))
		}
	}
}

// oneWay takes one message from a to b.
func oneWay(ctx context.Context, a, b *endpoint.Endpoint, n int) error {
	return Burst(ctx, a, b, n, 1)
}

// ownLooks is how often the receiver alone is polled before the sender is too:
// mostly it need not be.
const ownLooks = 1

// Burst sends count n-byte messages from a to b, posted one behind the other,
// and returns when all have arrived. a must have as many free buffers.
func Burst(ctx context.Context, a, b *endpoint.Endpoint, n, count int) error {
	for range count {
		if _, err := a.Acquire(ctx); err != nil {
			return err
		}
		if err := a.Post(n); err != nil {
			return err
		}
	}
	for looks := 1; count > 0; looks++ {
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
			looks = 0
			count--
		case looks%checkEvery == 0 && ctx.Err() != nil:
			return context.Cause(ctx)
		case looks > ownLooks:
			// The sending host may have a part in it, too.
			a.Poll()
		}
	}
	return nil
}

// Bandwidth streams n-byte messages from a to b for about the given time and
// returns how many bytes arrived and how long that took.
func Bandwidth(ctx context.Context, a, b *endpoint.Endpoint, n int, budget time.Duration) (bytes uint64, d time.Duration, err error) {
	start := time.Now()
	end := start.Add(budget)
	var sent, got uint64
	for sending := true; sending || got < sent; {
		if sending = sending && time.Now().Before(end); sending {
			k, err := fill(a, n)
			if err != nil {
				return 0, 0, err
			}
			sent += k
		}
		k, err := drain(b, n)
		if err != nil {
			return 0, 0, err
		}
		got += k
		if k == 0 && ctx.Err() != nil {
			return 0, 0, context.Cause(ctx)
		}
	}
	return got * uint64(n), time.Since(start), nil
}

// fill posts messages while there are free buffers.
func fill(a *endpoint.Endpoint, n int) (posted uint64, err error) {
	for {
		buf, err := a.TryAcquire()
		if err != nil || buf == nil {
			return posted, err
		}
		if err := a.Post(n); err != nil {
			return posted, err
		}
		posted++
	}
}

// drain takes messages while there are any.
func drain(b *endpoint.Endpoint, n int) (taken uint64, err error) {
	for {
		m, err := b.TryReceive()
		if err != nil || m == nil {
			return taken, err
		}
		if len(m) != n {
			return taken, fmt.Errorf("a message of %d bytes arrived with %d", n, len(m))
		}
		if err := b.Release(); err != nil {
			return taken, err
		}
		taken++
	}
}
