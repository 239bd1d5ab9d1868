package benchcmd

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/drivercost"
)

// driverReport holds what bench driver --json prints.
type driverReport struct {
	conditions
	drivercost.Result
}

type driverFlags struct {
	drivercost.Options
	Pin bool `flag:"pin" default:"true" help:"stay on the core that others use least"`
}

func (e env) driver(ctx context.Context, f *driverFlags, _ []string) error {
	f.Core = -1
	if p := bench.Pairs(); f.Pin && len(p) > 0 {
		f.Core = p[0].Cores[0]
	}
	if err := f.Validate(); err != nil {
		return option.Mark(err)
	}
	report := driverReport{conditions: here()}
	return e.measured(&report, drivercost.Parts, func(step bench.Progress) (err error) {
		f.Progress = step
		report.Result, err = drivercost.Run(ctx, f.Options)
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
