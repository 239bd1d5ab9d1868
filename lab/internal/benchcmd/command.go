// Package benchcmd holds the commands that measure: bench and bench compare.
package benchcmd

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/progress"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/scaling"
)

// env gives the commands their methods.
type env struct{ *command.Env }

// help has the help of the commands, see cmdtable.New.
//
//go:embed help.txt
var help string

// Commands makes the commands: bench, and the hidden one with which it starts itself.
func Commands(of *command.Env) []*cobra.Command {
	e := env{of}
	var places []string
	for _, p := range bench.IdlePlaces() {
		places = append(places, string(p))
	}
	t := cmdtable.New(help, map[string]string{
		"tests": strings.Join(bench.Tests(), ", "), "wires": strings.Join(bench.Wires(), ", "), "levels": strings.Join(bench.Levels(), ", "),
		"usual-wire": bench.UsualWire, "usual-tests": strings.Join(testsOf(bench.DefaultRows()), ","), "all-tests": strings.Join(Tests(), ", "),
		"peers": strings.Join(peerNames(), ","), "curves": strings.Join(scaling.Names(), ", "), "places": strings.Join(places, ","),
		"auto": "auto: two that others use least", "none": "none: not pinned",
		"auto-pairs": "auto: two cores, then two hardware threads of one core, where the machine has both, and those that others use least",
	})
	c := t.Command(cmdtable.Does("bench", e.bench, benchReport{}))
	c.AddCommand(t.Commands(
		cmdtable.Does("bench compare", e.compare, compareReport{}),
		cmdtable.Does("bench scaling", e.scaling, scalingReport{}),
		cmdtable.Does("bench breakdown", e.breakdown, breakdownReport{}),
		cmdtable.Does("bench driver", e.driver, driverReport{}),
		cmdtable.Does("bench idle", e.idle, idleReport{}),
	)...)
	worker := t.Command(cmdtable.Does(bench.WorkerCommand, e.worker, nil))
	worker.Hidden = true
	return []*cobra.Command{c, worker}
}

type benchFlags struct {
	Tests      []string      `flag:"tests" split:"comma" default:"latency,bandwidth" help:"{tests}"`
	Wires      []string      `flag:"wires" split:"comma" default:"shm" help:"{wires}"`
	Placements []string      `flag:"placements" split:"comma" default:"default" help:"default (the wire's), inline, thread"`
	Levels     []string      `flag:"reliability" split:"comma" default:"reliable-delivery" help:"{levels}"`
	Sizes      []string      `flag:"sizes" split:"comma" default:"64,4K,8K,64K" help:"bytes of a message; K and M are powers of two"`
	VIs        []string      `flag:"vis" split:"comma" default:"1" help:"numbers of VIs that take turns"`
	Window     int           `flag:"window" help:"messages under way on each VI; 0: 4 in round trips, 1 in reads, in streams 8 to 512 that fit 512 KiB"`
	Duration   time.Duration `flag:"duration" default:"1s" help:"how long to measure each time, after a tenth of that to warm up"`
	Repeat     int           `flag:"repeat" default:"3" help:"how often"`
	Cores      string        `flag:"cores" default:"auto" help:"cores of the two processes, as in 0,1; {auto}; {none}"`
	Eager      bool          `flag:"eager" help:"have the NICs hold messages and descriptors before they are posted"`
	Garbage    int           `flag:"garbage" help:"MB that another goroutine of each process allocates a second"`
	SVG        string        `flag:"svg" help:"file for a picture: latency, put and get, or bandwidth if there is none, against size"`
	HDR        string        `flag:"hdr" help:"file for all latencies, as an HdrHistogram log"`
	Profiles   string        `flag:"cpu-profile" help:"folder for CPU profiles of the two processes, a file for each measurement"`
	cmdtable.Force
}

// number reads 64, 4K or 1M.
func number(s string) (int, error) {
	n, err := option.ParseBytes(s)
	if err == nil && n > 1<<30 {
		err = fmt.Errorf("%q is more than 1G", s)
	}
	return int(n), err
}

// coresOf reads the flag --cores of a command that measures on one pair: auto is two
// cores, if there are two.
func coresOf(s string) ([]int, error) {
	pairs, err := pairsOf(s)
	if len(pairs) == 0 {
		return nil, err
	}
	return pairs[0].Cores, err
}

// pairsOf reads the flag --cores of a command that measures on every pair that there is.
func pairsOf(s string) ([]bench.Pair, error) {
	switch s {
	case "none":
		return nil, nil
	case "auto":
		return bench.Pairs(), nil
	}
	have := bench.Cores()
	var cores []int
	for part := range strings.SplitSeq(s, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || !slices.Contains(have, n) {
			return nil, fmt.Errorf("--cores %q: it is auto, none, or two of the cores %v", s, have)
		}
		cores = append(cores, n)
	}
	if len(cores) != 2 {
		return nil, fmt.Errorf("--cores %q: it is auto, none, or two of the cores %v", s, have)
	}
	return []bench.Pair{bench.PairOf(cores[0], cores[1])}, nil
}

// where says of a pair what its hardware threads have in common, or their numbers where
// the kernel does not tell.
func where(p bench.Pair) string {
	switch {
	case len(p.Cores) == 0:
		return "not pinned"
	case p.Proximity == "":
		return fmt.Sprintf("%d,%d", p.Cores[0], p.Cores[1])
	}
	return string(p.Proximity)
}

// tasks are the measurements that the flags ask for.
func (f *benchFlags) tasks() ([]bench.Task, error) {
	cores, err := coresOf(f.Cores)
	if err != nil {
		return nil, err
	}
	if f.Repeat < 1 || f.Repeat > 1000 {
		return nil, fmt.Errorf("--repeat %d: 1 to 1000", f.Repeat)
	}
	if f.Garbage < 0 || f.Garbage > 100_000 {
		return nil, fmt.Errorf("--garbage %d: 0 to 100000 MB a second", f.Garbage)
	}
	var tasks []bench.Task
	for _, test := range f.Tests {
		for _, wire := range f.Wires {
			for _, placement := range f.Placements {
				if placement == "default" {
					placement = ""
				}
				for _, level := range f.Levels {
					for _, vis := range f.VIs {
						for _, size := range f.Sizes {
							t := bench.Task{Wire: wire, Placement: placement, Cores: cores}
							t.Spec = bench.Spec{Test: bench.Test(test), Role: bench.Source, Window: f.Window, Reliability: level,
								Nanoseconds: int64(f.Duration), Core: -1, Eager: f.Eager, Garbage: int64(f.Garbage) * 1e6, ProfileFolder: f.Profiles}
							if t.Spec.Bytes, err = number(size); err != nil {
								return nil, fmt.Errorf("--sizes: %w", err)
							}
							if f.Window == 0 {
								t.Spec.Window = bench.UsualWindow(t.Spec.Test, t.Spec.Bytes)
							}
							if t.Spec.VIs, err = number(vis); err != nil {
								return nil, fmt.Errorf("--vis: %w", err)
							}
							if err := t.Validate(); err != nil {
								return nil, err
							}
							tasks = append(tasks, t)
						}
					}
				}
			}
		}
	}
	return tasks, nil
}

func (e env) bench(ctx context.Context, f *benchFlags, _ []string) error {
	tasks, err := f.tasks()
	if err != nil {
		return option.Mark(err)
	}
	if f.Profiles != "" {
		if err := os.MkdirAll(f.Profiles, 0o777); err != nil {
			return err
		}
	}
	for flag, file := range map[string]string{"--svg": f.SVG, "--hdr": f.HDR} {
		if err := checkFile(flag, file, f.Force.Force); err != nil {
			return err
		}
	}
	report := benchReport{conditions: here()}
	meter := e.Steps("measuring", len(tasks)*f.Repeat)
	defer meter.Stop()
	for _, t := range tasks {
		runs, err := repeated(ctx, t, f.Repeat, meter)
		if len(runs) > 0 {
			report.Results = append(report.Results, summarize(&t, runs))
		}
		if err == nil {
			continue
		}
		meter.Stop()
		return e.early(&report, len(report.Results), err)
	}
	meter.Stop()
	return errors.Join(report.writeFiles(f), e.print(&report))
}

// repeated measures n times. With an error it returns those before.
func repeated(ctx context.Context, t bench.Task, n int, meter *progress.Meter) (runs []bench.Result, err error) {
	for range n {
		r, err := bench.Run(ctx, t)
		if err != nil {
			return runs, fmt.Errorf("%s of %d bytes over %s: %w", t.Spec.Test, t.Spec.Bytes, t.Wire, err)
		}
		runs = append(runs, r)
		meter.Add(1)
	}
	return runs, nil
}

// conditions are part of every report.
type conditions struct {
	// Environment is where it was measured.
	Environment bench.Environment `json:"environment"`
	// Incomplete says why it ended before everything was measured.
	Incomplete string `json:"incomplete,omitempty"`
}

func here() conditions { return conditions{Environment: bench.Surroundings()} }

// under returns the conditions of a report.
func (c *conditions) under() *conditions { return c }

// measurement is the report of a command that measures, under some conditions.
type measurement interface {
	under() *conditions
	table(out io.Writer) error
}

// print prints a report: as JSON, or with its table.
func (e env) print(r measurement) error {
	if e.JSON {
		return e.PrintJSON(r)
	}
	c := r.under()
	env := &c.Environment
	if _, err := fmt.Fprintf(e.Stdout, "%s, Linux %s, %s, load %v\n\n", env.Processor, env.Kernel, env.Go, env.Load); err != nil {
		return err
	}
	err := r.table(e.Stdout)
	if c.Incomplete != "" && err == nil {
		_, err = fmt.Fprintf(e.Stdout, "Incomplete, it ended early: %s\n", c.Incomplete)
	}
	return err
}

// measured fills a report in steps, and prints it.
func (e env) measured(r measurement, steps int, measure func(step bench.Progress) error) error {
	meter := e.Steps("measuring", steps)
	defer meter.Stop()
	if err := measure(func() { meter.Add(1) }); err != nil {
		return err
	}
	meter.Stop()
	return e.print(r)
}

// early prints a report whose measurement ended early, if there is anything in it, and returns why
// it ended.
func (e env) early(r measurement, measured int, err error) error {
	if measured == 0 {
		return err
	}
	r.under().Incomplete = err.Error()
	return errors.Join(err, e.print(r))
}

// worker is the command of a measuring process.
func (e env) worker(ctx context.Context, _ *cmdtable.NoFlags, _ []string) error {
	return bench.RunWorker(ctx, os.Stdin, e.Stdout)
}
