package benchcmd

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
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
	options      breakdown.Options
	bytes, cores string
}

func (e env) breakdown() *cobra.Command {
	var f breakdownFlags
	c := &cobra.Command{
		Use:   "breakdown",
		Short: "Measure one message step by step, and the limits of the machine",
		Long: `Measure where the time of one message goes, one way: post, doorbell, fetch, copy,
wire, deliver, completion, poll, and what is left of the two NICs' loops (rest).

How: two NICs on a memory wire, engines inline, and one goroutine that posts, steps
the sender's NIC, steps the receiver's NIC and takes the message; so steps follow
each other and the sum can be held against the whole. The wire is wrapped, in this
command only: each call of a NIC into it is a border at which the processor's time
stamp counter is read, as are the calls into the NICs; a look for a frame is one only
if there is a frame. What a border costs in a loop is measured and taken off. Three things have no border of their own:
  doorbell    256 posts with a doorbell each, less 256 that share one, of receives to a
              VI that is not connected, of which the NIC takes the index only; taken off
              the post
  completion  256 sends to a VI that is not connected, flushed by one step of a NIC whose
              doorbells are in memory; taken off deliver
  poll        the RecvDone that finds the message
Of all messages the fifth that took longest is left out (interrupts). The whole is
measured the same way over the wire as it is, without borders. All this is done in
thirty rounds, of which the one with the least time counts. The remainder is the whole
less the sum of the steps: negative if borders hinder the processor more than their
cost in a loop, positive if less.

Limits: the rate of copies within the caches and beyond them, and the same message
between two processes, measured as bench compare does (shm-share, in five rounds): on
two cores and on two hardware threads of one core, where the machine has both. Beside it
stands the time in which a cache line crosses between the two (two threads that answer
each other through one atomic word): a message has two or more such crossings in it.

Layers, as the SONIC-VIA paper has them: post, doorbell and poll are the application's, in
the provider's library; the other steps are the NICs' message layer. The kernel agent opens,
connects and registers, and has no step of a message.

With --eager each step stands beside the same one without eager memory, all of which is
measured first, in half of the time.

` + keys.Of(breakdownReport{}),
		Example: `  trapeze-lab bench breakdown
  trapeze-lab bench breakdown --bytes 8K --duration 10s --json
  trapeze-lab bench breakdown --eager`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error { return e.runBreakdown(ctx, &f) }),
	}
	flags := c.Flags()
	flags.StringVar(&f.bytes, "bytes", "64", "bytes of the message, up to 64K")
	flags.DurationVar(&f.options.For, "duration", 3*time.Second, "how long to measure, about, in all")
	flags.BoolVar(&f.options.Eager, "eager", false, "have the NICs hold messages, descriptors and tokens before they are posted, and show the steps with and without; not between processes")
	flags.StringVar(&f.cores, "cores", "auto", "cores, as in 0,1; "+autoPairs+"; none: not pinned")
	return c
}

func (e env) runBreakdown(ctx context.Context, f *breakdownFlags) error {
	var err error
	if f.options.Bytes, err = number(f.bytes); err != nil {
		return option.Errorf("--bytes: %w", err)
	}
	if f.options.Pairs, err = pairsOf(f.cores); err != nil {
		return option.Mark(err)
	}
	if err := f.options.Validate(); err != nil {
		return option.Mark(err)
	}
	report := breakdownReport{conditions: here()}
	parts := breakdown.Parts
	if f.options.Eager {
		parts *= 2
	}
	return e.measured(&report, parts, func(step bench.Progress) (err error) {
		f.options.Progress = step
		if f.options.Eager {
			f.options.For = max(f.options.For/2, breakdown.MinFor)
			ordinary := f.options
			ordinary.Eager = false
			r, err := breakdown.Run(ctx, ordinary)
			if err != nil {
				return err
			}
			report.Ordinary = &r
		}
		report.Result, err = breakdown.Run(ctx, f.options)
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
