package benchcmd

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/breakdown"
)

// breakdownReport holds what bench breakdown --json prints.
type breakdownReport struct {
	conditions
	breakdown.Result
	// Ordinary, with --eager, is the same message without eager memory; its limits are
	// measured as well.
	Ordinary *breakdown.Result `json:"ordinary,omitempty" help:"with --eager: without eager memory"`
}

type breakdownFlags struct {
	breakdown.Options
	Size  string `flag:"bytes" default:"64" help:"bytes of the message, up to 64K"`
	Cores string `flag:"cores" default:"auto" help:"cores, as in 0,1; {auto-pairs}; {none}"`
}

func (e env) breakdown(ctx context.Context, f *breakdownFlags, _ []string) error {
	var err error
	if f.Bytes, err = number(f.Size); err != nil {
		return option.Errorf("--bytes: %w", err)
	}
	if f.Pairs, err = pairsOf(f.Cores); err != nil {
		return option.Mark(err)
	}
	if err := f.Validate(); err != nil {
		return option.Mark(err)
	}
	report := breakdownReport{conditions: here()}
	parts := breakdown.Parts
	if f.Eager {
		parts *= 2
	}
	return e.measured(&report, parts, func(step bench.Progress) (err error) {
		f.Progress = step
		if f.Eager {
			f.For = max(f.For/2, breakdown.MinFor)
			ordinary := f.Options
			ordinary.Eager = false
			r, err := breakdown.Run(ctx, ordinary)
			if err != nil {
				return err
			}
			report.Ordinary = &r
		}
		report.Result, err = breakdown.Run(ctx, f.Options)
		return err
	})
}

// table prints the steps, their sum and the whole, and the limits.
func (r *breakdownReport) table(out io.Writer) error {
	fmt.Fprintf(out, "One message of %s, one way\n", size(r.Bytes))
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	ordinary := breakdown.Result{Steps: make([]breakdown.Step, len(r.Steps))}
	if r.Ordinary != nil {
		ordinary = *r.Ordinary
		fmt.Fprintln(w, "\teager\tof the whole\tordinary\t")
	}
	line := func(name string, ns, without float64, what string) {
		fmt.Fprintf(w, "%s\t%7.1f ns\t%5.1f %%\t", name, ns, 100*ns/max(r.Whole, 1e-9))
		if r.Ordinary != nil {
			fmt.Fprintf(w, "%7.1f ns\t", without)
		}
		fmt.Fprintln(w, what)
	}
	for i, s := range r.Steps {
		line(s.Name, s.Ns, ordinary.Steps[i].Ns, s.What)
	}
	for _, l := range []breakdown.Layer{breakdown.Application, breakdown.MessageLayer} {
		line(string(l), r.Spent(l), ordinary.Spent(l), "its steps; the kernel agent has none")
	}
	line("sum", r.Sum, ordinary.Sum, "")
	line("remainder", r.Remainder, ordinary.Remainder, "what borders do to the processor beyond their cost in a loop")
	line("whole", r.Whole, ordinary.Whole, "without borders")
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nLimits\n")
	w = tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	for _, c := range r.Limits.Copies {
		fmt.Fprintf(w, "copy of %s\t%s ns\t%.1f GB/s\n", size(c.Bytes), short(c.Ns), c.GBs)
	}
	for _, b := range r.Limits.Between {
		fmt.Fprintf(w, "this message, two processes, %s\t%.0f ns\tp50 of %d rounds (%.0f..%.0f); p99.9 %.0f ns", where(b.Pair), b.P50, b.Rounds, b.P50Spread[0], b.P50Spread[1], b.P999)
		if b.Crossing > 0 {
			fmt.Fprintf(w, "; a cache line crosses in %.0f ns", b.Crossing)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
