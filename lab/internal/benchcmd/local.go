package benchcmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/breakdown"
	"github.com/trapeze-nic/trapeze/lab/internal/drivercost"
	"github.com/trapeze-nic/trapeze/lab/internal/scaling"
)

type scalingReport struct {
	conditions
	scaling.Result
}

type scalingFlags struct {
	scaling.Plan
	pictureFlags `override:"svg" help:"file for a picture of the curves"`
}

func measureScaling(ctx context.Context, f *scalingFlags, r *scalingReport, step func()) (_ bool, err error) {
	r.Result, err = f.Run(ctx, step)
	return len(r.Curves)+len(r.Memory) > 0, err
}

// Table prints each curve with the name of its growth, and the memory.
func (r *scalingReport) Table(out io.Writer) error {
	for _, c := range r.Curves {
		fmt.Fprintf(out, "%s: %s, %s against the number of %ss\n  %s\n", c.Name, c.What, c.Unit, c.Of, c.Growth.Sentence(c.Unit, c.Of))
		if err := command.Text(out, c.Points); err != nil {
			return err
		}
		fmt.Fprintln(out)
	}
	if len(r.Memory) == 0 {
		return nil
	}
	fmt.Fprintln(out, "Memory for one more at one NIC, bytes")
	return command.Text(out, r.Memory)
}

// draw draws the costs of a message against numbers.
func (r *scalingReport) draw(string) ([]byte, error) {
	chart := plot.Chart{Title: "Cost of a message of 64 bytes", Note: r.Environment.Processor + ", " + r.Environment.Go,
		X: plot.Axis{Label: "number of VIs, CQs or regions (logarithmic axis)", Log2: true},
		Y: plot.Axis{Label: "time of both hosts and both NICs", Zero: true, Time: true}}
	for _, c := range r.Curves {
		if c.Unit != "ns" {
			continue
		}
		s := plot.Series{Name: c.Name, Says: c.Growth.Each(c.Unit, c.Of)}
		for _, p := range c.Points {
			s.Points = append(s.Points, plot.Point{X: float64(p.N), Y: float64(p.Value)})
		}
		chart.Series = append(chart.Series, s)
	}
	return chart.SVG()
}

type breakdownReport struct {
	conditions
	breakdown.Result
}

func measureBreakdown(ctx context.Context, f *breakdown.Options, r *breakdownReport, step func()) (_ bool, err error) {
	r.Result, err = breakdown.Run(ctx, *f, step)
	return false, err
}

type driverReport struct {
	conditions
	drivercost.Result
}

type driverFlags struct{ bench.Local }

// Steps is the number of parts that are measured.
func (*driverFlags) Steps() int { return drivercost.Parts }

func measureDriver(ctx context.Context, f *driverFlags, r *driverReport, step func()) (_ bool, err error) {
	r.Result, err = drivercost.Run(ctx, f.Local, step)
	return false, err
}

type idleReport struct {
	conditions
	Results []idleRow `json:"results"`
}

type idleRow struct {
	Place     string       `json:"place"`
	Idle      bench.Figure `json:"idle_s"`
	IdleCPU   bench.Figure `json:"idle_cpu_percent"`
	Messages  uint64       `json:"messages"`
	Pause     bench.Figure `json:"pause_ms"`
	WakingCPU bench.Figure `json:"waking_cpu_percent"`
	P50       bench.Figure `json:"p50_us"`
	P99       bench.Figure `json:"p99_us"`
	Max       bench.Figure `json:"max_us"`
}

type idleFlags struct {
	Places   []string      `flag:"places" split:"comma" default:"{places}" help:"how the application waits"`
	Duration time.Duration `flag:"duration" default:"4s" range:"20ms..20m" help:"how long to measure each place"`
	Pause    time.Duration `flag:"pause" default:"20ms" range:"100us..10s" help:"time before each message"`
	Cores    string        `flag:"cores" default:"auto" help:"cores of the waiter's and the sender's process over shm, as in 0,1; {auto}; {none}"`
	tasks    []bench.Task
}

// Steps is the number of places.
func (f *idleFlags) Steps() int { return len(f.Places) }

// Validate makes the tasks.
func (f *idleFlags) Validate() error {
	cores, err := coresOf(f.Cores)
	if err != nil {
		return err
	}
	for _, p := range f.Places {
		t, err := bench.IdleTask(p, f.Duration, f.Pause, cores)
		if err != nil {
			return err
		}
		f.tasks = append(f.tasks, t)
	}
	return nil
}

func measureIdle(ctx context.Context, f *idleFlags, r *idleReport, step func()) (bool, error) {
	for i, t := range f.tasks {
		found, err := bench.Run(ctx, t)
		if err != nil {
			return i > 0, err
		}
		r.Results = append(r.Results, idleRowOf(f.Places[i], &t, found.Counted()))
		step()
	}
	return true, nil
}

func idleRowOf(place string, t *bench.Task, s *bench.Side) idleRow {
	percent := func(cpu, of time.Duration) bench.Figure {
		return bench.Figure(100 * cpu.Seconds() / max(of.Seconds(), 1e-9))
	}
	us := func(p float64) bench.Figure { return bench.Figure(s.Percentile(p)) }
	return idleRow{Place: place, Idle: bench.Figure(s.Quiet.Seconds()), IdleCPU: percent(s.QuietCPU, s.Quiet), Messages: s.Messages,
		Pause: bench.Figure(t.Pause) / 1e6, WakingCPU: percent(s.CPU, s.Elapsed), P50: us(50), P99: us(99), Max: us(100)}
}

// Table prints a line for each place.
func (r *idleReport) Table(out io.Writer) error { return command.Text(out, r.Results) }
