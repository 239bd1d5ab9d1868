package benchcmd

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/scaling"
)

// scalingReport holds what bench scaling --json prints.
type scalingReport struct {
	conditions
	scaling.Result
}

type scalingFlags struct {
	plan               scaling.Plan
	bytes, cores, file string
	force              bool
}

func (e env) scaling() *cobra.Command {
	f := scalingFlags{plan: scaling.Default()}
	c := &cobra.Command{
		Use:   "scaling",
		Short: "Measure how cost and memory grow with VIs, CQs, regions and sizes",
		Long: `Measure the cost of a message against the number of VIs, of completion queues
(CQs) and of registered regions, and against its size; what a VI, a CQ and a region
take in memory; and name the growth of each curve.

Curves, all with messages of 64 bytes but for the sizes:
  vis           messages take turns on n connected VIs, in an order of no pattern
  idle-vis      messages on one VI beside n-1 connected ones with nothing to say
  shared-cq     as vis, with one CQ for all receivers
  cqs           1024 VIs take turns, whose receivers share n CQs
  regions       each message goes from one region to another, picked at random
                among n at either NIC
  sizes-memory  latency one way against the message's size, in one process
  sizes-shm     the same over shared memory, two processes
  memory        bytes for one more, by difference over many: Go heap of the host's
                side and of the emulated NIC's, by who allocated; memory outside the
                heap (rings, doorbell pages); file descriptors
vis and regions also tell what it takes to make one more (vis-setup, regions-setup).

All but sizes-shm run in one process and one goroutine: two NICs on a memory wire,
engines inline, so that a figure is the work of both hosts and both NICs, and no
waiting. Each point is the median of means over blocks of messages, with quartiles.

Growth: a constant, base + slope × log2(n) and base + slope × n are fitted by least
squares of relative errors. The better one of the last two is named, unless it rises
by less than 10 % in all, or leaves more than 70 % of the constant's residual: then
the curve is constant. All three are in the JSON.

` + keys.Of(scalingReport{}),
		Example: `  trapeze-lab bench scaling --svg scaling.svg
  trapeze-lab bench scaling --curves vis,idle-vis --max-vis 1024 --json`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error { return e.runScaling(ctx, &f) }),
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.plan.Curves, "curves", nil, "which to measure (default all): "+strings.Join(scaling.Names(), ", "))
	flags.IntVar(&f.plan.MostVIs, "max-vis", f.plan.MostVIs, "largest number of VIs")
	flags.IntVar(&f.plan.MostRegions, "max-regions", f.plan.MostRegions, "largest number of regions at each NIC")
	flags.StringVar(&f.bytes, "max-bytes", "16M", "largest message")
	flags.DurationVar(&f.plan.For, "duration", f.plan.For, "how long to measure each point, about")
	flags.StringVar(&f.cores, "cores", "auto", "cores, as in 0,1; auto: two that others use least; none: not pinned")
	flags.StringVar(&f.file, "svg", "", "file for a picture of the curves")
	command.ForceFlag(c, &f.force)
	return c
}

func (e env) runScaling(ctx context.Context, f *scalingFlags) error {
	var err error
	if f.plan.MostBytes, err = number(f.bytes); err != nil {
		return option.Errorf("--max-bytes: %w", err)
	}
	if f.plan.Cores, err = coresOf(f.cores); err != nil {
		return option.Mark(err)
	}
	if err := f.plan.Validate(); err != nil {
		return option.Mark(err)
	}
	if err := checkFile("--svg", f.file, f.force); err != nil {
		return err
	}
	report := scalingReport{conditions: here()}
	return e.measured(&report, f.plan.Steps(), func(step bench.Progress) (err error) {
		f.plan.Progress = step
		if report.Result, err = f.plan.Run(ctx); err != nil || f.file == "" {
			return err
		}
		return draw("--svg", f.file, f.force, report.picture)
	})
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
	return command.Table(out, tabwriter.AlignRight, "of\tmade\thost heap\tdevice heap\tshared\ttotal\tfiles\t", r.Memory, func(m scaling.Memory) string {
		return fmt.Sprintf("%s\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%.1f\t", m.Of, m.Count, m.Host, m.Device, m.Shared, m.Total, m.Files)
	})
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
