// Package drivercost measures what the driver alone takes of a processor: a post, the
// doorbell and taking the descriptor back, on memory in place of a device.
package drivercost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// Cost holds what one descriptor takes.
type Cost struct {
	// Batch is the number of descriptors that share a doorbell and are taken back together.
	Batch int `json:"batch"`
	// CQ says that a completion queue tells of them, else the work queue is polled.
	CQ bool `json:"cq"`
	// Ns is the time in the quietest of the rounds, less Mock; Median that of the
	// middle one.
	Ns     float64 `json:"ns"`
	Median float64 `json:"median_ns"`
	// Cycles are Ns in cycles of the processor's clock.
	Cycles float64 `json:"cycles"`
	// Mock holds what the stores of the device take by themselves, in ns.
	Mock float64 `json:"mock_ns"`
}

// Result of Run.
type Result struct {
	Costs []Cost `json:"costs"`
	// Clock is the processor's clock in GHz, as fast as it was seen.
	Clock float64 `json:"clock_ghz"`
}

// Options of Run.
type Options struct {
	// For is at least 10 ms.
	For time.Duration `flag:"duration" default:"2s" help:"how long to measure, about, in all"`
	// Core is where it is measured; -1 to pin nothing.
	Core int
	// Progress, if not nil, is called after each of Parts parts.
	Progress bench.Progress
}

// Parts is the number of times that Progress is called.
const Parts = 4

// ErrOptions is wrapped by the errors about bad options.
var ErrOptions = errors.New("bad measurement of the driver")

// Validate checks options. Errors wrap ErrOptions.
func (o *Options) Validate() error {
	if o.For < 10*time.Millisecond || o.For > 10*time.Minute {
		return fmt.Errorf("%w: duration %v (10ms to 10m)", ErrOptions, o.For)
	}
	return nil
}

// Run measures.
func Run(ctx context.Context, o Options) (r Result, err error) {
	if err := o.Validate(); err != nil {
		return r, err
	}
	err = bench.OnCore(ctx, o.Core, func() error {
		for _, batch := range []int{1, MaxBatch} {
			for _, withCQ := range []bool{false, true} {
				c, clock, err := o.measure(ctx, batch, withCQ)
				if err != nil {
					return err
				}
				r.Costs, r.Clock = append(r.Costs, c), max(r.Clock, clock)
				o.Progress.Step()
			}
		}
		return nil
	})
	return r, err
}

// window is the number of descriptors that are measured at a time: some microseconds, between two
// interrupts.
const window = 512

// minRounds is the number of rounds at least.
const minRounds = 10

// measure measures one way of posting and taking back.
func (o *Options) measure(ctx context.Context, batch int, withCQ bool) (c Cost, clock float64, err error) {
	r, err := New(ctx, batch, withCQ)
	if err != nil {
		return c, 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var whole, mock, cycle []float64
	err = bench.Rounds(ctx, o.For/Parts, minRounds, func() error {
		start := time.Now()
		for range window / batch {
			if err := r.Round(); err != nil {
				return err
			}
		}
		whole = append(whole, float64(time.Since(start))/window)
		start = time.Now()
		for range window / batch {
			r.complete()
		}
		mock = append(mock, float64(time.Since(start))/window)
		start = time.Now()
		chained = chain(chained)
		cycle = append(cycle, float64(time.Since(start))/(2*window))
		return nil
	})
	if err != nil {
		return c, 0, err
	}
	slices.Sort(whole)
	clock = 1 / slices.Min(cycle)
	c = Cost{Batch: batch, CQ: withCQ, Mock: slices.Min(mock)}
	c.Ns, c.Median = max(whole[0]-c.Mock, 0), max(whole[len(whole)/2]-c.Mock, 0)
	c.Cycles = c.Ns * clock
	return c, clock, nil
}

// chained keeps the result of chain, so that the compiler does not leave it out.
var chained uint64

// chain does 2*window additions and exclusive ors, each of which needs the one before
// it: they take a cycle each, whatever else the processor can do at a time.
func chain(x uint64) uint64 {
	y := x | 1
	for range window / 8 {
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
		x += y
		y ^= x
	}
	return x ^ y
}
