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
	places          []string
	cores           string
	duration, pause time.Duration
}

func (e env) idle() *cobra.Command {
	var f idleFlags
	c := &cobra.Command{
		Use:   "idle",
		Short: "Measure what an application that waits costs, and how fast it wakes",
		Long: `Measure an application that waits on interrupts for messages that come rarely: the
processor time that it uses while nothing comes, in percent of a core, and the time
from just before a message is posted until the one who sleeps has it.

Half of the duration nothing comes. In the other half a message of 8 bytes comes
after each pause. All times are of one clock, CLOCK_MONOTONIC.

Places:
  memory-inline  sender and waiter are goroutines of one process, and the one that
                 polls runs the NICs; the processor time is of both
  memory-thread  the same, the NICs have a goroutine each
  shm-inline     sender and waiter are processes, pinned to a core each; the processor
                 time is the waiter's
  shm-thread     the same, the NICs have a goroutine each
and without a NIC, to compare with:
  kernel         a thread that is blocked in poll(2) of an eventfd is woken
  runtime        a goroutine that waits for an eventfd is woken

The goal is less than 1 % of a core while idle, and a p50 of 20 us or less; as the
kernel's share of that is the machine's, its figure stands beside ours.

` + keys.Of(idleReport{}) + `
Stopped early, it prints what it has measured, and
incomplete says why it ended.`,
		Example: `  trapeze-lab bench idle
  trapeze-lab bench idle --places shm-inline --duration 20s --pause 100ms --json`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error { return e.runIdle(ctx, &f) }),
	}
	var names []string
	for _, p := range bench.IdlePlaces() {
		names = append(names, string(p))
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.places, "places", names, "how the application waits")
	flags.DurationVar(&f.duration, "duration", 4*time.Second, "how long to measure each place")
	flags.DurationVar(&f.pause, "pause", 20*time.Millisecond, "time before each message")
	flags.StringVar(&f.cores, "cores", "auto", "cores of the waiter's and the sender's process over shm, as in 0,1; auto: two that others use least; none: not pinned")
	return c
}

func (e env) runIdle(ctx context.Context, f *idleFlags) error {
	cores, err := coresOf(f.cores)
	if err != nil {
		return option.Mark(err)
	}
	var tasks []bench.IdleTask
	for _, p := range f.places {
		t := bench.IdleTask{Place: bench.IdlePlace(p), Idle: f.duration / 2, Pause: f.pause, Cores: cores}
		if f.pause > 0 {
			t.Count = int(max(f.duration/2/f.pause, 1))
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
		meets := row.IdleCPU < idleGoalCPU && row.P50 <= idleGoalWake
		row.MeetsGoals = &meets
	}
	return row
}

// table prints a line for each place.
func (r *idleReport) table(out io.Writer) error {
	const header = "place\tidle s\tidle CPU %\tmessages\tpause ms\tCPU % then\tp50 us\tp99 us\tmax us\tgoals\t"
	err := command.Table(out, tabwriter.AlignRight, header, r.Results, func(row idleRow) string {
		goals := "-"
		if row.MeetsGoals != nil {
			goals = map[bool]string{true: "met", false: "missed"}[*row.MeetsGoals]
		}
		return fmt.Sprintf("%s\t%.2f\t%.2f\t%d\t%g\t%.2f\t%.1f\t%.1f\t%.1f\t%s\t", row.Place, row.Idle, row.IdleCPU,
			row.Messages, row.Pause, row.WakingCPU, row.P50, row.P99, row.Max, goals)
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "\nGoals: less than %g %% of a core while idle, p50 of %g us or less.\n", idleGoalCPU, idleGoalWake)
	return err
}
