package modelcmd

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/trapeze-nic/trapeze/lab/internal/fit"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

// split is a way to fit on some rows of Table 1 and predict the others.
type split struct {
	name, fitted, predicted string
	use                     func(published.Row) bool
}

// splits are the halves of cross-validation. Rows outside Table 1 stay in.
var splits = []split{
	{"latencies", "latencies", "bandwidths", func(r published.Row) bool { return r.Compute != "stream bandwidth" }},
	{"bandwidths", "bandwidths", "latencies", func(r published.Row) bool { return r.Compute == "stream bandwidth" }},
	{"store-and-forward", "store and forward", "cut-through", func(r published.Row) bool { return r.Policy == "store-and-forward" }},
	{"cut-through", "cut-through", "store and forward", func(r published.Row) bool { return r.Policy != "store-and-forward" }},
}

// fitResult is the JSON object of "trapeze-lab model fit".
type fitResult struct {
	fit.Parameters
	Transfer  fit.Interface      `json:"transfer"`
	Fitted    published.Summary  `json:"fitted"`
	Predicted *published.Summary `json:"predicted,omitempty" help:"with --half"`
}

type fitFlags struct {
	Published string `flag:"published" help:"table of published figures, CSV (required)"`
	Half      string `flag:"half" help:"fit to one half of Table 1: {halves}"`
	Effort    int    `flag:"effort" default:"{effort}" help:"how often the search starts again from where it ended, 1 to 100"`
}

func (x *commands) fit(ctx context.Context, f *fitFlags, _ []string) error {
	rows, err := readRows(f.Published)
	if err != nil {
		return err
	}
	use, err := half2use(f.Half)
	if err != nil {
		return err
	}
	if f.Effort < 1 || f.Effort > 100 {
		return usage("--effort", fmt.Sprint(f.Effort), "1 to 100")
	}
	search := fit.DefaultEffort
	search.Restarts = f.Effort
	p, err := fit.Fit(ctx, rows, use, search)
	if err != nil {
		return err
	}
	lines, err := published.Compare(published.NewModel(ctx, p.Loader()), rows)
	if err != nil {
		return err
	}
	edt, err := fit.Transfer(ctx, rows)
	if err != nil {
		return err
	}
	r := fitResult{Parameters: p, Transfer: edt, Fitted: published.Summarise(lines, func(l published.Line) bool { return l.Fit && use(l.Row) })}
	if f.Half != "" {
		r.Predicted = new(published.Summarise(lines, func(l published.Line) bool { return inTable1(l) && !use(l.Row) }))
	}
	return x.Print(r, func(w io.Writer) error { return writeFit(w, r, lines, use) })
}

func halves() string {
	names := make([]string, len(splits))
	for i, s := range splits {
		names[i] = s.name
	}
	return strings.Join(names, ", ")
}

// half2use returns which rows take part.
func half2use(half string) (func(published.Row) bool, error) {
	if half == "" {
		return func(published.Row) bool { return true }, nil
	}
	for _, s := range splits {
		if s.name == half {
			return func(r published.Row) bool { return !ofTable1(r) || s.use(r) }, nil
		}
	}
	return nil, usage("--half", half, halves())
}

func writeFit(w io.Writer, r fitResult, lines []published.Line, use func(published.Row) bool) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	s := r.Shared
	fmt.Fprintf(t, "shared\tdecision %.2f us\tcompletion %.2f us\tpacket %.2f us\tpulse %.2f us\n", s.Decision, s.Completion, s.Packet, s.Pulse)
	for _, name := range fit.Names() {
		o := r.Platforms[name]
		fmt.Fprintf(t, "%s\tread %.1f MB/s\twrite %.1f MB/s\toverhead %.2f us\thost %.1f us", name, o.Read, o.Write, o.Overhead, o.Host)
		if o.Link != 0 {
			fmt.Fprintf(t, "\tcompletion %.2f us, link %.1f MB/s", o.Completion, o.Link)
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintf(t, "sonic-via\tstart %.0f cycles\tframe %.0f cycles\n", r.Transfer.Start, r.Transfer.Frame)
	fmt.Fprintln(t)
	for _, l := range lines {
		if l.Counts && l.Fit {
			part := "fitted"
			if !use(l.Row) {
				part = "predicted"
			}
			fmt.Fprintf(t, "%s\t%s\t%s %s\t%.1f\t%s\t%s\n", l.ID, l.Condition, l.Value, l.Unit, l.Computed, l.Percent(), part)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nfitted: %d rows, mean error %.2f %%, maximum %.2f %% (%s)\n", r.Fitted.Rows, 100*r.Fitted.Mean, 100*r.Fitted.Maximum, r.Fitted.Worst)
	if p := r.Predicted; p != nil {
		fmt.Fprintf(w, "predicted: %d rows, mean error %.2f %%, maximum %.2f %% (%s)\n", p.Rows, 100*p.Mean, 100*p.Maximum, p.Worst)
	}
	return nil
}
