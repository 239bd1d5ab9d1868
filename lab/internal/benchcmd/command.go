// Package benchcmd holds the commands that measure: bench and bench compare.
package benchcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/progress"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// env gives the commands their methods.
type env struct{ *command.Env }

// Commands makes the commands: bench, and the hidden one with which it starts itself.
func Commands(of *command.Env) []*cobra.Command {
	e := env{of}
	return []*cobra.Command{e.bench(), e.worker()}
}

type benchFlags struct {
	tests, wires, placements, levels []string
	sizes, vis                       []string
	cores                            string
	window, repeat                   int
	garbage                          int
	duration                         time.Duration
	svg, hdr, profiles               string
	force, eager                     bool
}

func (e env) bench() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure latency, bandwidth and message rate between two processes",
		Long: `Measure messages between two emulated NICs, each in a process of its own that is
pinned to a core, for every combination of the values given. Latency is one way:
half a round trip. put is an RDMA write into memory whose last byte the other end
polls, one way too; get an RDMA read, from the post to the completion. Each is
repeated; the table has medians and their spread.

Wires: shm (shared memory between processes), shm-share (the same, with bytes
handed over by reference), shm-write (and RDMA by copies), memif, udp (whose processes
are not pinned: a goroutine takes the datagrams), vfio-user (both engines in a third
process), memory (both NICs in one process and one goroutine), veth, veth-9000 and
veth-65535 (AF_XDP on two interfaces of Linux in network namespaces of their own, with
that MTU, which takes root).
Placements of the engine: inline (the application's polls drive it), thread.

` + keys.Of(benchReport{}) + `
A MB is 10^6 bytes. Stopped early, it prints what it has measured, and incomplete
says why it ended.`,
		Example: `  trapeze-lab bench
  trapeze-lab bench --tests latency --wires shm,memif,udp --sizes 64,4K --svg latency.svg
  trapeze-lab bench --tests put,get --wires shm-share
  trapeze-lab bench --tests latency --wires vfio-user --sizes 64,256,1K,4K --eager
  trapeze-lab bench --vis 1,16,256 --sizes 64 --json
  trapeze-lab bench --sizes 64 --cpu-profile /tmp/bench && go tool pprof -top /tmp/bench/*.pprof
  trapeze-lab bench compare --json`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error { return e.runBench(ctx, &f) }),
	}
	flags := c.Flags()
	flags.StringSliceVar(&f.tests, "tests", []string{"latency", "bandwidth"}, strings.Join(bench.Tests(), ", "))
	flags.StringSliceVar(&f.wires, "wires", []string{"shm"}, strings.Join(bench.Wires(), ", "))
	flags.StringSliceVar(&f.placements, "placements", []string{"default"}, "default (the wire's), inline, thread")
	flags.StringSliceVar(&f.levels, "reliability", []string{"reliable-delivery"}, strings.Join(bench.Levels(), ", "))
	flags.StringSliceVar(&f.sizes, "sizes", []string{"64", "4K", "8K", "64K"}, "bytes of a message; K and M are powers of two")
	flags.StringSliceVar(&f.vis, "vis", []string{"1"}, "numbers of VIs that take turns")
	flags.IntVar(&f.window, "window", 0, "messages under way on each VI; 0: 4 in round trips, 1 in reads, in streams 8 to 512 that fit 512 KiB")
	flags.DurationVar(&f.duration, "duration", time.Second, "how long to measure each time, after a tenth of that to warm up")
	flags.IntVar(&f.repeat, "repeat", 3, "how often")
	flags.StringVar(&f.cores, "cores", "auto", "cores of the two processes, as in 0,1; auto: two that others use least; none: not pinned")
	flags.BoolVar(&f.eager, "eager", false, "have the NICs hold messages and descriptors before they are posted")
	flags.IntVar(&f.garbage, "garbage", 0, "MB that another goroutine of each process allocates a second")
	flags.StringVar(&f.svg, "svg", "", "file for a picture: latency, put and get, or bandwidth if there is none, against size")
	flags.StringVar(&f.hdr, "hdr", "", "file for all latencies, as an HdrHistogram log")
	flags.StringVar(&f.profiles, "cpu-profile", "", "folder for CPU profiles of the two processes, a file for each measurement")
	command.ForceFlag(c, &f.force)
	c.AddCommand(e.compare(), e.scaling(), e.breakdown(), e.driver(), e.idle())
	return c
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

// autoPairs says what --cores auto means where every pair is measured.
const autoPairs = "auto: two cores, then two hardware threads of one core, where the machine has both, and those that others use least"

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
	cores, err := coresOf(f.cores)
	if err != nil {
		return nil, err
	}
	if f.repeat < 1 || f.repeat > 1000 {
		return nil, fmt.Errorf("--repeat %d: 1 to 1000", f.repeat)
	}
	if f.garbage < 0 || f.garbage > 100_000 {
		return nil, fmt.Errorf("--garbage %d: 0 to 100000 MB a second", f.garbage)
	}
	var tasks []bench.Task
	for _, test := range f.tests {
		for _, wire := range f.wires {
			for _, placement := range f.placements {
				if placement == "default" {
					placement = ""
				}
				for _, level := range f.levels {
					for _, vis := range f.vis {
						for _, size := range f.sizes {
							t := bench.Task{Wire: wire, Placement: placement, Cores: cores}
							t.Spec = bench.Spec{Test: bench.Test(test), Role: bench.Source, Window: f.window, Reliability: level,
								Nanoseconds: int64(f.duration), Core: -1, Eager: f.eager, Garbage: int64(f.garbage) * 1e6, ProfileFolder: f.profiles}
							if t.Spec.Bytes, err = number(size); err != nil {
								return nil, fmt.Errorf("--sizes: %w", err)
							}
							if f.window == 0 {
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

func (e env) runBench(ctx context.Context, f *benchFlags) error {
	tasks, err := f.tasks()
	if err != nil {
		return option.Mark(err)
	}
	if f.profiles != "" {
		if err := os.MkdirAll(f.profiles, 0o777); err != nil {
			return err
		}
	}
	for flag, file := range map[string]string{"--svg": f.svg, "--hdr": f.hdr} {
		if err := checkFile(flag, file, f.force); err != nil {
			return err
		}
	}
	report := benchReport{conditions: here()}
	meter := e.Steps("measuring", len(tasks)*f.repeat)
	defer meter.Stop()
	for _, t := range tasks {
		runs, err := repeated(ctx, t, f.repeat, meter)
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
	if err := report.writeFiles(f); err != nil {
		return err
	}
	return e.print(&report)
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

// worker is the hidden command of a measuring process.
func (e env) worker() *cobra.Command {
	return &cobra.Command{Use: bench.WorkerCommand, Hidden: true, Args: cobra.NoArgs,
		Long: "Started by 'trapeze-lab bench', with which it talks in a way of its own.\n\nJSON: it takes no notice of --json.",
		RunE: command.Run(func(ctx context.Context, _ []string) error { return bench.RunWorker(ctx, os.Stdin, e.Stdout) })}
}

// Tests are the names that --tests takes.
func Tests() []string { return compareTests() }
