package modelcmd

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/trapeze-nic/trapeze/pipeline/profile"
	"github.com/trapeze-nic/trapeze/pipeline/published"
)

// ErrTooFar: a computed figure is further from the published one than was allowed.
var ErrTooFar = errors.New("computed figures are too far from the published ones")

func compareCommand() *cobra.Command {
	var file string
	var asJSON bool
	var limitMean, limitMax float64
	cmd := &cobra.Command{
		Use:   "compare --published FILE.csv",
		Short: "Compute published figures again and show the error of each",
		Long: `Reads a table of published figures (columns id,source,quantity,condition,value,unit),
computes those that the model covers, and prints published value, computed value and
error. What a row stands for follows from its words: platform, payload, policy, pulse,
unit. Its id and its value take no part. Rows that are not computed are listed with the
reason.

Mean and maximum are over computed times and bandwidths with an exact published
figure. Rows of kind "input" show costs that a profile states; bounds and ranges
count as met or not.`,
		Example: `  trapeze model compare --published published.csv
  trapeze model compare --published published.csv --max-error 4.5 --mean-error 2 --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			rows, err := readRows(file)
			if err != nil {
				return err
			}
			lines, err := published.Compare(published.NewModel(profile.Load), rows)
			if err != nil {
				return fmt.Errorf("%s: %w", file, err)
			}
			if asJSON {
				err = writeJSON(cmd.OutOrStdout(), comparisonOf(lines))
			} else {
				err = writeComparison(cmd.OutOrStdout(), lines)
			}
			if err != nil {
				return err
			}
			s := published.Summarise(lines, inTable1)
			if 100*s.Maximum > limitMax || 100*s.Mean > limitMean {
				return fmt.Errorf("table 1: mean %.2f %% (limit %g), maximum %.2f %% at %s (limit %g): %w",
					100*s.Mean, limitMean, 100*s.Maximum, s.Worst, limitMax, ErrTooFar)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&file, "published", "", "table of published figures, CSV (required)")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	cmd.Flags().Float64Var(&limitMax, "max-error", 1e9, "fail if a row of Table 1 is further off, in percent")
	cmd.Flags().Float64Var(&limitMean, "mean-error", 1e9, "fail if the mean over Table 1 is greater, in percent")
	return cmd
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

// comparedRow is a row of the JSON object.
type comparedRow struct {
	ID        string  `json:"id"`
	Source    string  `json:"source"`
	Quantity  string  `json:"quantity"`
	Condition string  `json:"condition"`
	Unit      string  `json:"unit"`
	Published string  `json:"published"`
	Kind      string  `json:"kind"`
	What      string  `json:"what"`
	Computed  float64 `json:"computed,omitempty"`
	Error     float64 `json:"error_percent,omitempty"`
}

type comparison struct {
	Rows    []comparedRow     `json:"rows"`
	Table1  published.Summary `json:"table1"`
	Overall published.Summary `json:"overall"`
}

func comparisonOf(lines []published.Line) comparison {
	c := comparison{Table1: published.Summarise(lines, inTable1), Overall: published.Summarise(lines, everything)}
	for _, l := range lines {
		c.Rows = append(c.Rows, comparedRow{ID: l.ID, Source: l.Source, Quantity: l.Quantity, Condition: l.Condition, Unit: l.Unit,
			Published: l.Value, Kind: string(l.Kind), What: l.What, Computed: l.Computed, Error: 100 * l.Error})
	}
	return c
}

func writeComparison(w io.Writer, lines []published.Line) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "id\tpublished\tcomputed\terror\tunit\tkind\twhat was computed")
	for _, l := range lines {
		if l.Kind != published.NotModelled {
			fmt.Fprintf(t, "%s\t%s\t%.2f\t%+.1f %%\t%s\t%s\t%s\n", l.ID, l.Value, l.Computed, 100*l.Error, l.Unit, l.Kind, l.What)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintln(w, "\nnot modelled:")
	for _, l := range lines {
		if l.Kind == published.NotModelled {
			fmt.Fprintf(t, "%s\t%s (%s)\t%s\n", l.ID, l.Quantity, l.Source, l.What)
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
		fmt.Fprintf(w, "%s: %d rows, mean error %.2f %%, maximum %.2f %% (%s)\n", s.name, s.Rows, 100*s.Mean, 100*s.Maximum, s.Worst)
	}
	return nil
}
