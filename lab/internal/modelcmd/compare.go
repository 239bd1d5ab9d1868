package modelcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

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
	Only      string  `flag:"only" help:"file with the ids of the rows that take part, one a line (default: all)"`
	MaxError  float64 `flag:"max-error" help:"fail if a row of Table 1 is further off, in percent, or if there is none (default: no limit)"`
	MeanError float64 `flag:"mean-error" help:"fail if the mean over Table 1 is greater, in percent, or if it has no row (default: no limit)"`
	Given     cmdtable.Given
}

func (x *commands) compare(ctx context.Context, f *compareFlags, _ []string) error {
	if err := cmp.Or(between("--max-error", f.MaxError, 0, 1e9, "percent"), between("--mean-error", f.MeanError, 0, 1e9, "percent")); err != nil {
		return err
	}
	rows, err := readRows(f.Published)
	if err != nil {
		return err
	}
	if f.Only != "" {
		if rows, err = onlyRows(rows, f.Only); err != nil {
			return err
		}
	}
	lines, err := published.Compare(published.NewModel(ctx, profile.Hosts.Load), rows)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Published, err)
	}
	if err := x.Print(comparisonOf(lines), func(w io.Writer) error { return writeComparison(w, lines) }); err != nil {
		return err
	}
	return f.withinLimits(published.Summarise(lines, inTable1))
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

// maxIDs bounds a file of ids in bytes.
const maxIDs = 1 << 20

// onlyRows returns the rows whose ids a file lists. An id that no row has is an error.
func onlyRows(rows []published.Row, file string) ([]published.Row, error) {
	f, err := openInput("--only", file)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxIDs+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(text) > maxIDs {
		return nil, usage("--only", file, "a file of at most 1 MiB")
	}
	ids := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if id := strings.TrimSpace(line); id != "" {
			ids[id] = true
		}
	}
	var chosen []published.Row
	for _, r := range rows {
		if ids[r.ID] {
			chosen = append(chosen, r)
			delete(ids, r.ID)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		return nil, usage("--only", id, "ids of the table, one a line")
	}
	if len(chosen) == 0 {
		return nil, usage("--only", file, "one id at least")
	}
	return chosen, nil
}

func inTable1(l published.Line) bool { return ofTable1(l.Row) }

// ofTable1 reports whether a row is of CS-1997-20, Table 1.
func ofTable1(r published.Row) bool { return strings.HasPrefix(r.Source, "CS-1997-20, Table 1") }

func everything(published.Line) bool { return true }

// comparedRow is a row of the JSON object.
type comparedRow struct {
	ID        string   `json:"id"`
	Source    string   `json:"source"`
	Quantity  string   `json:"quantity"`
	Condition string   `json:"condition"`
	Unit      string   `json:"unit"`
	Published string   `json:"published"`
	Kind      string   `json:"kind"`
	What      string   `json:"what"`
	Computed  *float64 `json:"computed,omitempty" help:"unless it is not modelled"`
	Highest   *float64 `json:"computed_highest,omitempty" help:"of a range"`
	Error     *float64 `json:"error_percent,omitempty" help:"unless it is not modelled"`
}

type comparison struct {
	Rows    []comparedRow     `json:"rows"`
	Table1  published.Summary `json:"table1"`
	Overall published.Summary `json:"overall"`
}

func comparisonOf(lines []published.Line) comparison {
	c := comparison{Rows: []comparedRow{}, Table1: published.Summarise(lines, inTable1), Overall: published.Summarise(lines, everything)}
	for _, l := range lines {
		row := comparedRow{ID: l.ID, Source: l.Source, Quantity: l.Quantity, Condition: l.Condition, Unit: l.Unit,
			Published: l.Value, Kind: string(l.Kind()), What: l.What()}
		if l.Kind() != published.NotModelled {
			row.Computed, row.Error = &l.Computed, new(100*l.Error)
			if l.Highest != l.Computed {
				row.Highest = &l.Highest
			}
		}
		c.Rows = append(c.Rows, row)
	}
	return c
}

func writeComparison(w io.Writer, lines []published.Line) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "id\tpublished\tcomputed\terror\tunit\tkind\twhat was computed")
	for _, l := range lines {
		if l.Kind() != published.NotModelled {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, l.Published(), l.Result(), l.Percent(), l.Unit, l.Kind(), l.What())
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	heading := "\nnot modelled:\n"
	for _, l := range lines {
		if l.Kind() == published.NotModelled {
			fmt.Fprint(w, heading)
			heading = ""
			fmt.Fprintf(t, "%s\t%s (%s)\t%s\n", l.ID, l.Quantity, l.Source, l.What())
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w)
	for _, s := range []struct {
		name string
		published.Summary
	}{{"CS-1997-20, Table 1", published.Summarise(lines, inTable1)}, {"all computed times and bandwidths", published.Summarise(lines, everything)}} {
		if s.Rows == 0 {
			fmt.Fprintf(w, "%s: 0 rows\n", s.name)
			continue
		}
		fmt.Fprintf(w, "%s: %d rows, mean error %.2f %%, maximum %.2f %% (%s)\n", s.name, s.Rows, 100*s.Mean, 100*s.Maximum, s.Worst)
	}
	return nil
}
