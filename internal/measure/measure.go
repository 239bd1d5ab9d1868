// Package measure times messages between two connected ends that one goroutine
// drives: what is measured is the path through the NICs, without a scheduler in
// it.
package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// End is one end of a connection: a via.Conn, or what a benchmark has on a bare VI.
type End interface {
	// TryAcquire returns nil if there is no buffer, or no room at the other end.
	TryAcquire() ([]byte, error)
	// Post sends the first n bytes of the buffer.
	Post(n int) error
	// TryReceive returns nil if no message is there.
	TryReceive() ([]byte, error)
	Release() error
	// Poll makes progress on the NIC.
	Poll() bool
}

// longest one-way time that is told apart from longer ones.
const longest = 10 * time.Second

// checkEvery is after how many looks in vain a wait looks at the clock.
const checkEvery = 1 << 12

// Latency times round trips of n-byte messages between a and b for about the
// given time, one at least, after as many unmeasured ones as warm everything up, and returns
// halves of round trips in nanoseconds.
func Latency(ctx context.Context, a, b End, n int, budget time.Duration) (*hdrhistogram.Histogram, error) {
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
func oneWay(ctx context.Context, a, b End, n int) error {
	return Burst(ctx, a, b, n, 1)
}

// ownLooks is the number of times that the receiver alone is polled before the sender is too:
// mostly it need not be.
const ownLooks = 1

// Burst sends count n-byte messages from a to b, posted one behind the other,
// and returns when all have arrived.
func Burst(ctx context.Context, a, b End, n, count int) error {
	return burst(ctx, a, b, n, count, nil)
}

// BurstTimes is Burst, and returns how long each message took, from when it was posted.
func BurstTimes(ctx context.Context, a, b End, n, count int) ([]time.Duration, error) {
	took := make([]time.Duration, count)
	return took, burst(ctx, a, b, n, count, took)
}

// burst notes in took, unless that is nil, how long each message took.
func burst(ctx context.Context, a, b End, n, count int, took []time.Duration) error {
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
		case looks > ownLooks:
			// The sending host may have a part in it, too.
			a.Poll()
		}
	}
	return nil
}

// Bandwidth streams n-byte messages from a to b for about the given time and
// returns how many bytes arrived and how long that took.
func Bandwidth(ctx context.Context, a, b End, n int, budget time.Duration) (bytes uint64, d time.Duration, err error) {
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
func fill(a End, n int) (posted uint64, err error) {
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
func drain(b End, n int) (taken uint64, err error) {
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
