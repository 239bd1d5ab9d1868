// Package drivercost measures what the driver alone takes of a processor: a post, the
// doorbell and taking the descriptor back, on memory in place of a device.
package drivercost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// Cost holds what one descriptor takes.
type Cost struct {
	Batch  int          `json:"batch" help:"descriptors that share a doorbell and are taken back together"`
	CQ     bool         `json:"cq" help:"a completion queue tells of them, else the work queue is polled"`
	Ns     bench.Figure `json:"ns" help:"in the quietest round, less mock_ns"`
	Median bench.Figure `json:"median_ns" help:"in the middle one"`
	Mock   bench.Figure `json:"mock_ns" help:"the stores of the device by themselves"`
}

// Result of Run.
type Result struct {
	Costs []Cost `json:"costs"`
}

// Table prints a row for each way.
func (r *Result) Table(out io.Writer) error {
	fmt.Fprintln(out, "The driver alone, for each descriptor")
	return command.Text(out, r.Costs)
}

// Parts is the number of times that Run calls progress.
const Parts = 4

// Run measures.
func Run(ctx context.Context, o bench.Local, progress bench.Progress) (r Result, err error) {
	err = bench.OnCore(ctx, o.Core(), func() error {
		for _, batch := range []int{1, MaxBatch} {
			for _, withCQ := range []bool{false, true} {
				c, err := measure(ctx, o.For/Parts, batch, withCQ)
				if err != nil {
					return err
				}
				r.Costs = append(r.Costs, c)
				progress.Step()
			}
		}
		return nil
	})
	return r, err
}

// window is the number of descriptors that are measured at a time: some microseconds, between two
// interrupts.
const window = 512

const minRounds = 10

func measure(ctx context.Context, d time.Duration, batch int, withCQ bool) (c Cost, err error) {
	r, err := New(ctx, batch, withCQ)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var whole, mock []bench.Figure
	var lap time.Time
	took := func(all *[]bench.Figure) {
		*all = append(*all, bench.Figure(time.Since(lap))/window)
		lap = time.Now()
	}
	err = bench.Rounds(ctx, d, minRounds, func() error {
		lap = time.Now()
		for range window / batch {
			if err := r.Round(); err != nil {
				return err
			}
		}
		took(&whole)
		for range window / batch {
			r.complete()
		}
		took(&mock)
		return nil
	})
	if err != nil {
		return c, err
	}
	slices.Sort(whole)
	c = Cost{Batch: batch, CQ: withCQ, Mock: slices.Min(mock)}
	c.Ns, c.Median = max(whole[0]-c.Mock, 0), max(whole[len(whole)/2]-c.Mock, 0)
	return c, nil
}
