package benchcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/plot"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// compareReport holds what bench compare --json prints.
type compareReport struct {
	Rows []bench.Row `json:"rows"`
	conditions
	// Missing are the peers that are not installed, with what to install.
	Missing map[string]string `json:"missing,omitempty"`
}

type compareFlags struct {
	Wire      string        `flag:"wire" default:"{usual-wire}" help:"wire of our messages (shm-share: at most one copy, as UCX has it over cma): {wires}"`
	Placement string        `flag:"placement" default:"default" help:"our engine: default (the wire's), inline, thread"`
	Tests     []string      `flag:"tests" split:"comma" default:"{usual-tests}" help:"{all-tests}"`
	Peers     []string      `flag:"peers" split:"comma" default:"{peers}" help:"peers to measure"`
	Rounds    int           `flag:"rounds" default:"3" help:"how many turns each has"`
	Duration  time.Duration `flag:"duration" default:"1s" help:"how long to measure each time, about"`
	Cores     string        `flag:"cores" default:"auto" help:"cores of the two processes, as in 0,1; {auto-pairs}"`
	SVG       string        `flag:"svg" help:"file for a picture: our latency and bandwidth and those of the peers, against size"`
	cmdtable.Force
}

// Tests are the names that --tests takes.
func Tests() []string { return testsOf(compareRows()) }

// compareRows are the rows that are measured unless tests are named, and those that must be named.
func compareRows() []bench.Row {
	return slices.Concat(bench.DefaultRows(), bench.MPIRows(), bench.RootRows())
}

func testsOf(rows []bench.Row) []string {
	var names []string
	for _, r := range rows {
		if !slices.Contains(names, r.Test) {
			names = append(names, r.Test)
		}
	}
	return names
}

func peerNames() []string {
	var names []string
	for _, p := range bench.Peers() {
		names = append(names, p.Name)
	}
	return names
}

// errOneCore: the comparison is of pinned processes.
var errOneCore = errors.New("two cores are needed, as a comparison is of two processes pinned to a core each")

func (e env) compare(ctx context.Context, f *compareFlags, _ []string) error {
	c, err := f.comparison()
	if err != nil {
		return option.Mark(err)
	}
	if len(c.Pairs) == 0 {
		return errOneCore
	}
	if err := checkFile("--svg", f.SVG, f.Force.Force); err != nil {
		return err
	}
	report := compareReport{conditions: here(), Missing: map[string]string{}}
	for _, p := range bench.Peers() {
		if !slices.Contains(f.Peers, p.Name) {
			continue
		}
		if err := p.Available(); err != nil {
			report.Missing[p.Name] = err.Error()
			fmt.Fprintf(e.Stderr, "trapeze-lab: %v; going on without it\n", err)
			continue
		}
		c.Peers = append(c.Peers, p)
	}
	meter := e.Steps("comparing", c.Steps())
	defer meter.Stop()
	c.Progress = func() { meter.Add(1) }
	report.Rows, err = c.Compare(ctx)
	meter.Stop()
	if err != nil && len(report.Rows) > 0 {
		report.Incomplete = err.Error()
	} else if err != nil {
		return err
	}
	if f.SVG != "" && err == nil {
		err = draw("--svg", f.SVG, f.Force.Force, report.picture)
	}
	return errors.Join(err, e.print(&report))
}

// picture draws all latencies and bandwidths against sizes, of tests with two sizes or more. Each
// competitor looks the same in both.
func (r *compareReport) picture() ([]byte, error) {
	var charts []plot.Chart
	for _, test := range []struct {
		name  string
		chart plot.Chart
		scale float64 // from the row's unit to the chart's
	}{{"latency", latencyChart(&r.Environment), 1e3}, {"bandwidth", rateChart(&r.Environment), 1}} {
		c := test.chart
		for _, name := range r.names() {
			c.Series = append(c.Series, plot.Series{Name: name})
		}
		for i, row := range r.Rows {
			// Of several pairs and distances, the first.
			if row.Test != test.name || i > 0 && r.Rows[i-1].Test == row.Test && r.Rows[i-1].Bytes == row.Bytes {
				continue
			}
			addPoint(&c, bench.Us, row.Bytes, test.scale*row.Ours)
			for who, v := range row.Peers {
				addPoint(&c, who, row.Bytes, test.scale*v)
			}
			for i := range c.Series {
				if s := row.Statistics[c.Series[i].Name]; s != "p50" {
					c.Series[i].Says = s
				}
			}
		}
		if len(c.Series[0].Points) > 1 {
			charts = append(charts, c)
		}
	}
	return plot.Stack("Comparison", charts...)
}

func (f *compareFlags) comparison() (*bench.Comparison, error) {
	pairs, err := pairsOf(f.Cores)
	if err != nil {
		return nil, err
	}
	c := &bench.Comparison{Wire: f.Wire, Placement: f.Placement, Rounds: f.Rounds, For: f.Duration, Pairs: pairs}
	if c.Placement == "default" {
		c.Placement = ""
	}
	for _, p := range f.Peers {
		if !slices.Contains(peerNames(), p) {
			return nil, fmt.Errorf("--peers %s: %s", p, strings.Join(peerNames(), ", "))
		}
	}
	for _, r := range compareRows() {
		if slices.Contains(f.Tests, r.Test) {
			c.Rows = append(c.Rows, r)
		}
	}
	for _, t := range f.Tests {
		if names := Tests(); !slices.Contains(names, t) {
			return nil, fmt.Errorf("--tests %s: %s", t, strings.Join(names, ", "))
		}
	}
	return c, c.Validate()
}

// names are bench.Us, and the peers that have answered anything.
func (r *compareReport) names() []string {
	names := []string{bench.Us}
	for _, n := range peerNames() {
		if slices.ContainsFunc(r.Rows, func(row bench.Row) bool { _, ok := row.Peers[n]; return ok }) {
			names = append(names, n)
		}
	}
	return names
}

// table prints who was how fast.
func (r *compareReport) table(out io.Writer) error {
	names := r.names()[1:]
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "test\tsize\ton\tcrossing ns\trounds\tunit\ttrapeze\t%s\tratio to best\tspread\tp99.9 us\tp99.9 ratio\t\n", strings.Join(names, "\t"))
	for _, row := range r.Rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%.0f\t%d\t%s\t%s\t", row.Test, size(row.Bytes), where(row.Pair), row.Crossing, row.Rounds, row.Unit, short(row.Ours))
		for _, n := range names {
			v, ok := row.Peers[n]
			if !ok {
				fmt.Fprint(w, "-\t")
				continue
			}
			fmt.Fprintf(w, "%s\t", short(v))
		}
		if row.RatioToBest == nil {
			fmt.Fprint(w, "-\t-\t")
		} else {
			fmt.Fprintf(w, "%.2f %s\t%.2f..%.2f\t", *row.RatioToBest, row.Best, row.RatioSpread[0], row.RatioSpread[1])
		}
		tail, ratio := "-", "-"
		if t := row.Tail[bench.Us]; t > 0 {
			tail = short(t)
		}
		if row.TailRatio != nil {
			ratio = fmt.Sprintf("%.2f", *row.TailRatio)
		}
		fmt.Fprintf(w, "%s\t%s\t\n", tail, ratio)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, row := range r.Rows {
		for _, who := range slices.Sorted(maps.Keys(row.Failures)) {
			fmt.Fprintf(out, "%s, %s: %s\n", row.Test, size(row.Bytes), row.Failures[who])
		}
	}
	worst := 0.0
	for _, row := range r.Rows {
		worst = max(worst, row.Switches)
		if row.Unsteady > 0 {
			fmt.Fprintf(out, "%s, %s: in %d rounds the cores moved: they are left out, unless there are no others.\n", row.Test, size(row.Bytes), row.Unsteady)
		}
	}
	return disturbed(out, worst)
}

// short prints a figure with about three digits.
func short(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.2fM", v/1e6)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3f", v)
}
