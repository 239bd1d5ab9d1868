package telemetrycmd

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// statsReport is printed by stats --json.
type statsReport struct {
	NICs         []nicStats                `json:"nics"`
	Unresponsive []*telemetry.Unresponsive `json:"unresponsive" help:"processes that do not answer"`
}

type nicStats struct {
	*NIC
	Counters map[string]uint64    `json:"counters"`
	Wire     map[string]uint64    `json:"wire" help:"of a NIC that the process emulates"`
	Rows     []telemetry.Endpoint `json:"endpoints"`
}

type statsFlags struct {
	Watch    bool          `flag:"watch,w" help:"show rates until interrupted"`
	All      bool          `flag:"all,a" help:"counters that are zero too"`
	Interval time.Duration `flag:"interval,i" default:"1s" help:"with --watch: time from one look to the next"`
}

// word is the only argument, empty if there is none.
func word(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func (x *commands) stats(ctx context.Context, f *statsFlags, args []string) error {
	if err := checkInterval(f.Interval, 10*time.Millisecond); err != nil {
		return err
	}
	if f.Watch && x.JSON {
		return option.Errorf("--watch goes on, and --json prints one value: give one of them")
	}
	h := x.look(ctx, word(args))
	defer h.close()
	nics, err := h.choose(word(args))
	if err != nil {
		return err
	}
	if f.Watch {
		return x.watch(ctx, f, nics)
	}
	r := statsReport{NICs: []nicStats{}, Unresponsive: h.unresponsive}
	for _, n := range nics {
		s := nicStats{NIC: n}
		if s.Counters, _, err = n.counters(ctx); err != nil {
			return err
		}
		if s.Rows, err = n.endpoints(ctx); err != nil {
			return err
		}
		_ = n.ask(ctx, "/trapeze/wire", &s.Wire) // only emulated NICs have a wire here
		r.NICs = append(r.NICs, s)
	}
	return x.Print(r, func(w io.Writer) error { return f.print(w, r.NICs) })
}

// print prints the counters for people.
func (f *statsFlags) print(w io.Writer, nics []nicStats) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, n := range nics {
		fmt.Fprintf(t, "%s\tPID %s (%s)\n", n.Address, n.id(), n.Program)
		for _, group := range []struct {
			prefix string
			counts map[string]uint64
		}{{"", n.Counters}, {"wire_", n.Wire}} {
			for _, name := range slices.Sorted(maps.Keys(group.counts)) {
				if v := group.counts[name]; v != 0 || f.All {
					fmt.Fprintf(t, "  %s\t%d\n", group.prefix+name, v)
				}
			}
		}
		for _, e := range n.Rows {
			fmt.Fprintf(t, "  %s %d\t%s, %d of %d sends and %d of %d receives queued\n", e.Kind, e.Number,
				e.Reliability, e.SendQueued(), e.SendDepth, e.RecvQueued(), e.RecvDepth)
		}
	}
	return t.Flush()
}

// watch prints rates until ctx ends, or no NIC answers any more.
func (x *commands) watch(ctx context.Context, f *statsFlags, nics []*NIC) error {
	var gauges []gauge
	for _, n := range nics {
		gauges = append(gauges, newGauge(ctx, n))
	}
	for command.Pause(ctx, f.Interval) == nil {
		t := tabwriter.NewWriter(x.Stdout, 0, 8, 2, ' ', 0)
		live := 0
		for i := range gauges {
			rates := gauges[i].next(ctx)
			if gauges[i].err == nil {
				live++
			}
			fmt.Fprintf(t, "%s\tPID %s (%s)\n", gauges[i].nic.Address, gauges[i].nic.id(), gauges[i].nic.Program)
			for _, name := range slices.Sorted(maps.Keys(rates)) {
				if v := rates[name]; v != 0 || f.All {
					fmt.Fprintf(t, "  %s\t%s/s\n", name, amount(v))
				}
			}
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if live == 0 && ctx.Err() == nil {
			return fmt.Errorf("%w: the process has ended, or its NIC is gone", errNoNIC)
		}
	}
	return nil
}
