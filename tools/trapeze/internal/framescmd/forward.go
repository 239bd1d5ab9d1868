package framescmd

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// relayReport is the JSON output of forward.
type relayReport struct {
	totals
	// Dropped frames had no room in a send ring, or were too long for a port.
	Dropped uint64 `json:"dropped"`
}

// runForward passes frames between two ports.
func (x *commands) runForward(ctx context.Context, f *portFlags, _ []string) (err error) {
	if err := f.check(2); err != nil {
		return err
	}
	f.promiscuous, f.poll = true, true
	s, err := x.open(ctx, f)
	if err != nil {
		return err
	}
	defer s.close(&err)
	var dropped atomic.Uint64
	x.Note("passing frames between two ports")
	var workers []func(context.Context) error
	for i := range f.Queues {
		queues := [2]ethernet.Queue{s.ports[0].Queue(i), s.ports[1].Queue(i)}
		workers = append(workers, func(ctx context.Context) error { return forward(ctx, s.pool, queues, &dropped) })
	}
	if err := s.run(ctx, workers, 1); err != nil {
		return err
	}
	report := relayReport{Dropped: dropped.Load()}
	if report.totals, err = s.totals(); err != nil {
		return err
	}
	return x.Report(report)
}

// Rounds without frames before forward naps between them. It cannot sleep until an interrupt, as that would be one
// port's.
const (
	idleRounds = 100
	idleNap    = 50 * time.Microsecond
)

// forward passes on what comes into either queue until ctx ends. One goroutine uses both, as each sends what the other
// receives.
func forward(ctx context.Context, pool *ethernet.Pool, queues [2]ethernet.Queue, dropped *atomic.Uint64) error {
	frames := make([]ethernet.Frame, burst)
	for idle := 0; ctx.Err() == nil; idle++ {
		for p, q := range queues {
			n, err := pass(ctx, pool, q, queues[1-p], frames, dropped)
			if err != nil {
				return err
			}
			if n > 0 {
				idle = 0
			}
		}
		if idle > idleRounds {
			time.Sleep(idleNap)
		} else if idle > 0 {
			runtime.Gosched()
		}
	}
	return nil
}

// pass sends a burst of what has come into one queue by the other, and returns how many frames there were.
func pass(ctx context.Context, pool *ethernet.Pool, from, to ethernet.Queue, frames []ethernet.Frame, dropped *atomic.Uint64) (int, error) {
	n, err := from.Receive(frames)
	if n == 0 || err != nil {
		if err == nil {
			_, err = from.Unsent() // their buffers come back
		}
		return n, err
	}
	for i := range n {
		restoreTag(pool, &frames[i])
	}
	lost, err := send(ctx, to, frames[:n])
	dropped.Add(uint64(lost))
	return n, err
}
