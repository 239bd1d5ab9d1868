package benchcmd

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/drivercost"
)

// driverReport holds what bench driver --json prints.
type driverReport struct {
	conditions
	drivercost.Result
}

func (e env) driver() *cobra.Command {
	o := drivercost.Options{Core: -1}
	pinned := true
	c := &cobra.Command{
		Use:   "driver",
		Short: "Measure what the driver alone takes for a descriptor",
		Long: `Measure what the driver takes of a processor for each descriptor: Rearm, the post
with its checks, the doorbell, and taking the descriptor back. Of 1 and of 32
descriptors with one doorbell, found by polling the work queue or told by a
completion queue, which is asked once for a batch.

How: the device is memory. Its doorbells are stored to and never read; the
statuses and completion entries are written by the same goroutine before it polls.
What these stores take by themselves is measured and taken off (mock). Of windows
of 512 descriptors the quickest counts, beside which stands the median. A cycle is
what one addition takes that waits for the one before it.

A NIC adds to it: a store to its doorbell, which is not cached, and the
way of the lines that it has written into the processor's cache.

` + keys.Of(driverReport{}),
		Example: `  trapeze-lab bench driver
  trapeze-lab bench driver --duration 10s --json`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error {
			if p := bench.Pairs(); pinned && len(p) > 0 {
				o.Core = p[0].Cores[0]
			}
			return e.runDriver(ctx, o)
		}),
	}
	c.Flags().DurationVar(&o.For, "duration", 2*time.Second, "how long to measure, about, in all")
	c.Flags().BoolVar(&pinned, "pin", true, "stay on the core that others use least")
	return c
}

func (e env) runDriver(ctx context.Context, o drivercost.Options) error {
	if err := o.Validate(); err != nil {
		return option.Mark(err)
	}
	report := driverReport{conditions: here()}
	return e.measured(&report, drivercost.Parts, func(step bench.Progress) (err error) {
		o.Progress = step
		report.Result, err = drivercost.Run(ctx, o)
		return err
	})
}

// table prints a row for each way.
func (r *driverReport) table(out io.Writer) error {
	fmt.Fprintf(out, "The driver alone, for each descriptor, at %.2f GHz\n", r.Clock)
	return command.Table(out, tabwriter.AlignRight, "batch\tfound by\tns\tmedian ns\tcycles\tmock ns\t", r.Costs, func(c drivercost.Cost) string {
		by := "its queue"
		if c.CQ {
			by = "a CQ"
		}
		return fmt.Sprintf("%d\t%s\t%.1f\t%.1f\t%.0f\t%.1f\t", c.Batch, by, c.Ns, c.Median, c.Cycles, c.Mock)
	})
}
