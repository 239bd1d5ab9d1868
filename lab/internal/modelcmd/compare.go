package modelcmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

// ErrTooFar: a computed figure is further from the published one than was allowed.
var ErrTooFar = errors.New("computed figures are too far from the published ones")

// errNothing: a limit was given for errors that there are none of.
var errNothing = errors.New("nothing to hold against the limit")

type compareFlags struct {
	Published string  `flag:"published" help:"table of published figures, CSV (required)"`
	MaxError  float64 `flag:"max-error" range:"0..1000000000" help:"fail if a row of Table 1 is further off, in percent, or if there is none (default: no limit)"`
	MeanError float64 `flag:"mean-error" range:"0..1000000000" help:"fail if the mean over Table 1 is greater, in percent, or if it has no row (default: no limit)"`
	Given     cmdtable.Given
}

func (x *commands) compare(ctx context.Context, f *compareFlags, _ []string) error {
	rows, err := readRows(f.Published)
	if err != nil {
		return err
	}
	lines, err := published.Compare(published.NewModel(ctx, profile.Hosts.Load), rows)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Published, err)
	}
	c := comparison{lines, published.Summarise(lines, inTable1), published.Summarise(lines, everything)}
	if err := x.Report(c); err != nil {
		return err
	}
	return f.withinLimits(c.Table1)
}

// computations lists what a row can say to compute, for the help.
func computations() string {
	return "\n                  " + strings.Join(published.Computations(), "\n                  ")
}

// withinLimits holds the errors over Table 1 against those limits that were given.
func (f *compareFlags) withinLimits(s published.Summary) error {
	for _, l := range []struct {
		flag, what   string
		value, limit float64
	}{{"mean-error", "mean", 100 * s.Mean, f.MeanError}, {"max-error", "maximum, at " + s.Worst, 100 * s.Maximum, f.MaxError}} {
		switch {
		case !f.Given(l.flag):
			continue
		case s.Rows == 0:
			return fmt.Errorf("--%s %g: no row of CS-1997-20, Table 1 was computed: %w", l.flag, l.limit, errNothing)
		case l.value > l.limit:
			return fmt.Errorf("CS-1997-20, Table 1: %s: %.2f %%, the limit is %g %%: %w", l.what, l.value, l.limit, ErrTooFar)
		}
	}
	return nil
}

func readRows(file string) ([]published.Row, error) {
	f, err := openInput("--published", file)
	if err != nil {
		return nil, err
	}
	rows, err := published.Read(f, file)
	return rows, errors.Join(err, f.Close())
}

func inTable1(l published.Line) bool { return ofTable1(l.Row) }

// ofTable1 reports whether a row is of CS-1997-20, Table 1.
func ofTable1(r published.Row) bool { return strings.HasPrefix(r.Source, "CS-1997-20, Table 1") }

func everything(published.Line) bool { return true }

type comparison struct {
	Rows    []published.Line  `json:"rows"`
	Table1  published.Summary `json:"table1"`
	Overall published.Summary `json:"overall"`
}
