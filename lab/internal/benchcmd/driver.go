package benchcmd

import (
	"context"
	"fmt"
	"io"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/drivercost"
	"github.com/trapeze-nic/trapeze/lab/internal/table"
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
	return table.Write(out, r.Costs)
}
