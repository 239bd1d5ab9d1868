package modelcmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

// ErrTooFar: a computed figure is further from the published one than was allowed.
var ErrTooFar = errors.New("computed figures are too far from the published ones")

// errNothing: a limit was given for errors that there are none of.
var errNothing = errors.New("nothing to hold against the limit")

func compareCommand(e *command.Env) *cobra.Command {
	var file, only string
	var limitMean, limitMax float64
	cmd := &cobra.Command{
		Use:   "compare --published FILE.csv",
		Short: "Compute published figures again and show the error of each",
		Long: `Reads a table of published figures, computes those that the model covers, and prints
published value, computed value and error. Rows that are not computed are listed with the
reason. The columns are

id,source,quantity,condition,value,unit
    what the paper says; a value is 215, <80, >120 or 120-132
bound           < or > if the words and not the value make it a bound
compute         what to compute; empty if nothing is. One of` + computations() + `
platforms       names of profiles, with spaces between them if it takes several; or
                of a memory system; or mini, for cells, barriers and multicasts
policy          delivery policy; or mechanisms of transfer
payload         bytes
send_pulse, receive_pulse
                thresholds or pulses in bytes; empty: the policy's
fit             yes: trapeze-lab model fit may fit the platform to the row
note            what is computed, in words, or why nothing is

Of a table with only the first six columns, the rows that are also in the built-in table
(by source, quantity, condition and unit) are computed as it says. Others are computed if
their words name a platform, a policy, a payload and a latency, bandwidth or reduction of
latency. "P6/Natoma; 8K payload; adaptive" is such a condition.

--only names a file with ids, one a line: the other rows take no part. Empty lines, and
what follows a #, are left out.

Mean and maximum are over computed times and bandwidths with an exact published
figure. Rows of kind "input" show costs that a profile states; bounds and ranges
count as met or not.

` + keys.Of(comparison{}) + `
Errors are fractions.`,
		Example: `  trapeze-lab model compare --published published.csv
  trapeze-lab model compare --published published.csv --max-error 4.5 --mean-error 2 --json
  trapeze-lab model compare --published published.csv --only ids.txt`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cmp.Or(between("--"+maxError, limitMax, 0, 1e9, "percent"), between("--"+meanError, limitMean, 0, 1e9, "percent")); err != nil {
				return err
			}
			rows, err := readRows(file)
			if err != nil {
				return err
			}
			if only != "" {
				if rows, err = onlyRows(rows, only); err != nil {
					return err
				}
			}
			lines, err := published.Compare(published.NewModel(cmd.Context(), profile.Hosts.Load), rows)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if err := e.Print(comparisonOf(lines), func(w io.Writer) error { return writeComparison(w, lines) }); err != nil {
				return err
			}
			return withinLimits(cmd, published.Summarise(lines, inTable1), limitMean, limitMax)
		},
	}
	cmd.Flags().StringVar(&file, "published", "", "table of published figures, CSV (required)")
	cmd.Flags().StringVar(&only, "only", "", "file with the ids of the rows that take part, one a line (default: all)")
	cmd.Flags().Float64Var(&limitMax, maxError, 0, "fail if a row of Table 1 is further off, in percent, or if there is none (default: no limit)")
	cmd.Flags().Float64Var(&limitMean, meanError, 0, "fail if the mean over Table 1 is greater, in percent, or if it has no row (default: no limit)")
	return cmd
}

// computations lists what a row can say to compute, for the help.
func computations() string {
	return "\n                  " + strings.Join(published.Computations(), "\n                  ")
}

// Flags with limits.
const (
	maxError  = "max-error"
	meanError = "mean-error"
)

// withinLimits holds the errors over Table 1 against those limits that were given.
func withinLimits(cmd *cobra.Command, s published.Summary, mean, most float64) error {
	for _, l := range []struct {
		flag, what   string
		value, limit float64
	}{{meanError, "mean", 100 * s.Mean, mean}, {maxError, "maximum, at " + s.Worst, 100 * s.Maximum, most}} {
		switch {
		case !cmd.Flags().Changed(l.flag):
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
			percent := 100 * l.Error
			row.Computed, row.Error = &l.Computed, &percent
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
			fmt.Fprintf(t, "%s\t%s\t%s\t%+.1f %%\t%s\t%s\t%s\n", l.ID, l.Value, l.Result(), 100*l.Error, l.Unit, l.Kind(), l.What())
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nnot modelled:")
	for _, l := range lines {
		if l.Kind() == published.NotModelled {
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
