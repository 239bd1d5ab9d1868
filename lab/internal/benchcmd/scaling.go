package benchcmd

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/scaling"
	"github.com/trapeze-nic/trapeze/lab/internal/table"
)

// scalingReport holds what bench scaling --json prints.
type scalingReport struct {
	conditions
	scaling.Result
}

type scalingFlags struct {
	scaling.Plan
	Size  string `flag:"max-bytes" default:"16M" help:"largest message"`
	Cores string `flag:"cores" default:"auto" help:"cores, as in 0,1; {auto}; {none}"`
	SVG   string `flag:"svg" help:"file for a picture of the curves"`
	cmdtable.Force
}

func (e env) scaling(ctx context.Context, f *scalingFlags, _ []string) error {
	var err error
	if f.MostBytes, err = number(f.Size); err != nil {
		return option.Errorf("--max-bytes: %w", err)
	}
	if f.Plan.Cores, err = coresOf(f.Cores); err != nil {
		return option.Mark(err)
	}
	if err := f.Validate(); err != nil {
		return option.Mark(err)
	}
	if err := checkFile("--svg", f.SVG, f.Force.Force); err != nil {
		return err
	}
	report := scalingReport{conditions: here()}
	err = e.measured(&report, f.Steps(), func(step bench.Progress) (err error) {
		f.Progress = step
		report.Result, err = f.Plan.Run(ctx)
		return err
	})
	if err != nil || f.SVG == "" {
		return err
	}
	return draw("--svg", f.SVG, f.Force.Force, report.picture)
}

// table prints each curve with the name of its growth, and the memory.
func (r *scalingReport) table(out io.Writer) error {
	for _, c := range r.Curves {
		fmt.Fprintf(out, "%s: %s\n  %s\n", c.Name, c.What, c.Growth.Sentence(c.Unit, c.Of))
		header := fmt.Sprintf("%ss\t%s\tquartiles\t", c.Of, c.Unit)
		err := command.Table(out, tabwriter.AlignRight, header, c.Points, func(p scaling.Point) string {
			n := fmt.Sprint(p.N)
			if c.Of == "byte" {
				n = size(p.N)
			}
			return fmt.Sprintf("%s\t%s\t%s..%s\t", n, short(p.Value), short(p.Low), short(p.High))
		})
		if err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	if len(r.Memory) == 0 {
		return nil
	}
	fmt.Fprintln(out, "Memory for one more at one NIC, bytes")
	return table.Write(out, r.Memory)
}

// picture draws the costs of a message against numbers, and below latencies
// against sizes.
func (r *scalingReport) picture() ([]byte, error) {
	sizes := latencyChart(&r.Environment)
	sizes.X.Label = "size of the message, bytes (logarithmic axis; 0 is drawn at 1)"
	numbers := plot.Chart{Title: "Cost of a message of 64 bytes", Note: sizes.Note,
		X: plot.Axis{Label: "number of VIs, CQs or regions (logarithmic axis)", Log2: true},
		Y: plot.Axis{Label: "time of both hosts and both NICs", Zero: true, Time: true}}
	for _, c := range r.Curves {
		var chart *plot.Chart
		scale := 1.0
		switch {
		case c.Of == "byte":
			chart, scale = &sizes, float64(time.Microsecond)
		case c.Unit == "ns":
			chart = &numbers
		default:
			continue
		}
		s := plot.Series{Name: c.Name, Says: c.Growth.Each(c.Unit, c.Of)}
		for _, p := range c.Points {
			s.Points = append(s.Points, plot.Point{X: float64(max(p.N, 1)), Y: scale * p.Value})
		}
		chart.Series = append(chart.Series, s)
	}
	var charts []plot.Chart
	for _, c := range []plot.Chart{numbers, sizes} {
		if len(c.Series) > 0 {
			charts = append(charts, c)
		}
	}
	return plot.Stack("Scaling", charts...)
}
