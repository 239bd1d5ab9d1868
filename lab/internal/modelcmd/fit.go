package modelcmd

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/lab/internal/fit"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

// splits are the halves of cross-validation: which rows of Table 1 are fitted, while the others are predicted. Rows
// outside Table 1 stay in.
var splits = map[string]func(published.Row) bool{
	"latencies":         func(r published.Row) bool { return r.Compute != "stream bandwidth" },
	"bandwidths":        func(r published.Row) bool { return r.Compute == "stream bandwidth" },
	"store-and-forward": func(r published.Row) bool { return r.Policy == "store-and-forward" },
	"cut-through":       func(r published.Row) bool { return r.Policy != "store-and-forward" },
}

// fitResult is the JSON object of "trapeze-lab model fit".
type fitResult struct {
	fit.Parameters
	Transfer  fit.Interface      `json:"transfer"`
	Fitted    published.Summary  `json:"fitted"`
	Predicted *published.Summary `json:"predicted,omitempty" help:"with --half"`
	Rows      []fittedRow        `json:"rows"`
}

// fittedRow is a row that says that it may be fitted to.
type fittedRow struct {
	published.Line
	Fitted bool `json:"fitted" help:"it took part"`
}

type fitFlags struct {
	Published string `flag:"published" help:"table of published figures, CSV (required)"`
	Half      string `flag:"half" help:"fit to one half of Table 1: {halves}"`
}

func fitted(f *fitFlags, ctx context.Context) (r fitResult, err error) {
	rows, err := readRows(f.Published)
	if err != nil {
		return r, err
	}
	use, err := half2use(f.Half)
	if err != nil {
		return r, err
	}
	if r.Parameters, err = fit.Fit(ctx, rows, use, fit.DefaultEffort); err != nil {
		return r, err
	}
	lines, err := published.Compare(published.NewModel(ctx, r.Loader()), rows)
	if err != nil {
		return r, err
	}
	if r.Transfer, err = fit.Transfer(ctx, rows); err != nil {
		return r, err
	}
	r.Fitted = published.Summarise(lines, func(l published.Line) bool { return l.Fit && use(l.Row) })
	if f.Half != "" {
		r.Predicted = new(published.Summarise(lines, func(l published.Line) bool { return inTable1(l) && !use(l.Row) }))
	}
	for _, l := range lines {
		if l.Counts && l.Fit {
			r.Rows = append(r.Rows, fittedRow{l, use(l.Row)})
		}
	}
	return r, nil
}

func halves() string { return strings.Join(slices.Sorted(maps.Keys(splits)), ", ") }

// half2use returns which rows take part.
func half2use(half string) (func(published.Row) bool, error) {
	if half == "" {
		return func(published.Row) bool { return true }, nil
	}
	if of, ok := splits[half]; ok {
		return func(r published.Row) bool { return !ofTable1(r) || of(r) }, nil
	}
	return nil, usage("--half", half, halves())
}
