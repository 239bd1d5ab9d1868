package benchcmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/table"
)

// Goals of an idle application.
const (
	idleGoalCPU  = 1.0  // percent of a core
	idleGoalWake = 20.0 // us, p50
)

// idleReport holds what bench idle --json prints.
type idleReport struct {
	conditions
	Goals   map[string]float64 `json:"goals" help:"idle_cpu_percent, p50_us"`
	Results []idleRow          `json:"results"`
}

// idleRow is one place.
type idleRow struct {
	Place      string  `json:"place"`
	Idle       float64 `json:"idle_s"`
	IdleCPU    float64 `json:"idle_cpu_percent"`
	Messages   int64   `json:"messages"`
	Pause      float64 `json:"pause_ms"`
	WakingCPU  float64 `json:"waking_cpu_percent"`
	P50        float64 `json:"p50_us"`
	P99        float64 `json:"p99_us"`
	Max        float64 `json:"max_us"`
	MeetsGoals *bool   `json:"meets_goals" help:"null without a NIC"`
}

type idleFlags struct {
	Places   []string      `flag:"places" split:"comma" default:"{places}" help:"how the application waits"`
	Duration time.Duration `flag:"duration" default:"4s" help:"how long to measure each place"`
	Pause    time.Duration `flag:"pause" default:"20ms" help:"time before each message"`
	Cores    string        `flag:"cores" default:"auto" help:"cores of the waiter's and the sender's process over shm, as in 0,1; {auto}; {none}"`
}

func (e env) idle(ctx context.Context, f *idleFlags, _ []string) error {
	cores, err := coresOf(f.Cores)
	if err != nil {
		return option.Mark(err)
	}
	var tasks []bench.IdleTask
	for _, p := range f.Places {
		t := bench.IdleTask{Place: bench.IdlePlace(p), Idle: f.Duration / 2, Pause: f.Pause, Cores: cores}
		if f.Pause > 0 {
			t.Count = int(max(f.Duration/2/f.Pause, 1))
		}
		if err := t.Validate(); err != nil {
			return option.Mark(err)
		}
		tasks = append(tasks, t)
	}
	report := idleReport{conditions: here(), Results: []idleRow{},
		Goals: map[string]float64{"idle_cpu_percent": idleGoalCPU, "p50_us": idleGoalWake}}
	meter := e.Steps("waiting", len(tasks))
	defer meter.Stop()
	for _, t := range tasks {
		r, err := bench.RunIdle(ctx, t)
		if err != nil {
			meter.Stop()
			return e.early(&report, len(report.Results), fmt.Errorf("%s: %w", t.Place, err))
		}
		report.Results = append(report.Results, idleRowOf(&t, &r))
		meter.Add(1)
	}
	meter.Stop()
	return e.print(&report)
}

func idleRowOf(t *bench.IdleTask, r *bench.IdleResult) idleRow {
	percent := func(cpu, of time.Duration) float64 { return 100 * cpu.Seconds() / max(of.Seconds(), 1e-9) }
	us := func(p float64) float64 { return float64(r.Latencies.ValueAtPercentile(p)) / 1e3 }
	row := idleRow{Place: string(t.Place), Idle: r.Idle.Seconds(), IdleCPU: percent(r.IdleCPU, r.Idle),
		Messages: r.Latencies.TotalCount(), Pause: float64(t.Pause) / 1e6, WakingCPU: percent(r.WakingCPU, r.Waking),
		P50: us(50), P99: us(99), Max: us(100)}
	if t.Place != bench.IdleKernel && t.Place != bench.IdleRuntime {
		row.MeetsGoals = new(row.IdleCPU < idleGoalCPU && row.P50 <= idleGoalWake)
	}
	return row
}

// table prints a line for each place.
func (r *idleReport) table(out io.Writer) error {
	if err := table.Write(out, r.Results); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\nGoals: less than %g %% of a core while idle, p50 of %g us or less.\n", idleGoalCPU, idleGoalWake)
	return err
}
