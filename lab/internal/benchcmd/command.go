// Package benchcmd holds the commands that measure: bench and those below it.
package benchcmd

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
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
	list := func(names []string) string { return strings.Join(names, ", ") }
	t := cmdtable.New(help, map[string]string{
		"tests": list(bench.Tests()), "wires": list(bench.Wires()), "usual-wire": bench.UsualWire,
		"usual-tests": strings.Join(bench.Questions(false), ","), "all-tests": list(bench.Questions(true)),
		"peers": strings.Join(bench.PeerNames(), ","), "curves": list(scaling.Names()), "places": strings.Join(bench.IdlePlaces, ","),
		"auto": "auto: two that others use least", "none": "none: not pinned",
		"auto-pairs": "auto: two cores, then two hardware threads of one core, where the machine has both, and those that others use least",
	})
	c := t.Command(measures(e, "bench", measureMessages))
	c.AddCommand(t.Commands(
		measures(e, "bench compare", e.compare),
		measures(e, "bench scaling", measureScaling),
		measures(e, "bench breakdown", measureBreakdown),
		measures(e, "bench driver", measureDriver),
		measures(e, "bench idle", measureIdle),
	)...)
	worker := t.Command(cmdtable.Does(bench.WorkerCommand, func(ctx context.Context, _ *cmdtable.NoFlags, _ []string) error {
		return bench.RunWorker(ctx, os.Stdin, e.Stdout)
	}, nil))
	worker.Hidden = true
	return []*cobra.Command{c, worker}
}

// coresOf reads the flag --cores of a command that measures on one pair.
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
	have, a, b := bench.Cores(), 0, 0
	_, _ = fmt.Sscanf(s, "%d,%d", &a, &b)
	if s != fmt.Sprintf("%d,%d", a, b) || !slices.Contains(have, a) || !slices.Contains(have, b) {
		return nil, fmt.Errorf("--cores %q: it is auto, none, or two of the cores %v", s, have)
	}
	return []bench.Pair{bench.PairOf(a, b)}, nil
}

// conditions are part of every report.
type conditions struct {
	// Environment is where it was measured.
	Environment bench.Environment `json:"environment"`
	// Incomplete says why it ended before everything was measured.
	Incomplete string `json:"incomplete,omitempty"`
	markdown   bool   // where it was measured stands below the table, not above
}

func (c *conditions) under() *conditions { return c }

// asked are the flags F of a command that measures.
type asked[F any] interface {
	*F
	Steps() int // parts that are measured
}

// report is what a command prints: JSON, or a table.
type report[R any] interface {
	*R
	under() *conditions
	Table(out io.Writer) error
}

// measures makes the row of a command. measure fills the report, and says whether there is anything in it: if it ends
// early, the report says why, and is printed unless there is nothing.
func measures[F, R any, PF asked[F], PR report[R]](e env, name string, measure func(ctx context.Context, f PF, r PR, step func()) (some bool, err error)) cmdtable.Row {
	return cmdtable.Does(name, func(ctx context.Context, f *F, _ []string) error {
		if f, ok := any(f).(interface{ Validate() error }); ok {
			if err := f.Validate(); err != nil {
				return option.Mark(err)
			}
		}
		var to files
		if f, ok := any(f).(interface{ files() files }); ok {
			to = f.files()
		}
		if err := to.check(); err != nil {
			return err
		}
		r := PR(new(R))
		c := r.under()
		c.Environment = bench.Surroundings()
		meter := e.Steps("measuring", PF(f).Steps())
		some, err := measure(ctx, f, r, func() { meter.Add(1) })
		meter.Stop()
		switch {
		case err != nil && !some:
			return err
		case err != nil:
			c.Incomplete = err.Error()
		}
		if e.JSON {
			err = errors.Join(err, e.PrintJSON(r))
		} else {
			err = errors.Join(err, printed(e.Stdout, c, r))
		}
		if err != nil {
			return err
		}
		return to.write(r)
	}, *new(R))
}

func printed(out io.Writer, c *conditions, r interface{ Table(io.Writer) error }) error {
	env := &c.Environment
	if !c.markdown {
		fmt.Fprintf(out, "%s, Linux %s, %s, load %v\n\n", env.Processor, env.Kernel, env.Go, env.Load)
	}
	err := r.Table(out)
	if c.Incomplete != "" {
		fmt.Fprintf(out, "Incomplete, it ended early: %s\n", c.Incomplete)
	}
	if c.markdown {
		date, _, _ := strings.Cut(env.Time, "T")
		fmt.Fprintf(out, "- Commit %s; %s, %d cores; %s.\n", cmp.Or(env.Commit, "unknown"), env.Processor, len(env.Cores), date)
	}
	return err
}

// quiet is the number of involuntary context switches a second of two processes on cores of their
// own: the kernel's own threads make some.
const quiet = 100

// disturbed says below a table if other programs ran on the cores.
func disturbed(out io.Writer, switches bench.Figure) {
	if switches > quiet {
		fmt.Fprintf(out, "Disturbed: other programs took the cores %v times a second; "+
			"latencies and rates are not those of a quiet machine.\n", switches)
	}
}
