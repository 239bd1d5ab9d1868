package telemetrycmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// psReport is printed by ps --json.
type psReport struct {
	NICs         []psNIC                   `json:"nics"`
	Unresponsive []*telemetry.Unresponsive `json:"unresponsive" help:"processes that do not answer"`
}

// psNIC is a NIC with what it does.
type psNIC struct {
	*NIC
	Sent     float64 `json:"sent_bytes_per_second"`
	Received float64 `json:"received_bytes_per_second"`
}

type psFlags struct {
	Interval time.Duration `flag:"interval,i" default:"500ms" help:"time between two looks, from which rates come; 0 for none"`
}

func (x *commands) ps(ctx context.Context, f *psFlags, _ []string) error {
	if err := checkInterval(f.Interval, 0); err != nil {
		return err
	}
	h := x.look(ctx, "")
	defer h.close()
	r := psReport{NICs: []psNIC{}, Unresponsive: h.unresponsive}
	var gauges []gauge
	for _, n := range h.nics {
		gauges = append(gauges, newGauge(ctx, n))
	}
	if err := command.Pause(ctx, f.Interval); err != nil {
		return err
	}
	for i, n := range h.nics {
		rates := gauges[i].next(ctx)
		r.NICs = append(r.NICs, psNIC{n, rates["bytes_sent"], rates["bytes_received"]})
	}
	return x.Print(r, func(w io.Writer) error { return printPS(w, r.NICs) })
}

func printPS(w io.Writer, nics []psNIC) error {
	if len(nics) == 0 {
		_, err := fmt.Fprintln(w, "no process of this host has a NIC open that this user may look at")
		return err
	}
	return command.Table(w, 0, "PID\tPORT\tUSER\tPROGRAM\tVIS\tSENT/S\tRECEIVED/S\tNIC", nics, func(n psNIC) string {
		return fmt.Sprintf("%d\t%d\t%s\t%s\t%d\t%s\t%s\t%s", n.PID, n.Port, n.User, n.Program, n.VIs, amount(n.Sent), amount(n.Received), n.Address)
	})
}

// gauge makes rates of the counters of a NIC.
type gauge struct {
	nic    *NIC
	before map[string]uint64
	at     time.Time
	err    error // of the last look

	decided   map[string]uint64 // counters of the policy, nil unless top shows them
	decidedAt time.Time
}

func newGauge(ctx context.Context, n *NIC) gauge {
	g := gauge{nic: n}
	g.before, g.at, g.err = n.counters(ctx)
	return g
}

// next returns how much each counter has grown in a second since the look before; nothing if
// the NIC does not answer. One that was reset meanwhile begins anew.
func (g *gauge) next(ctx context.Context) map[string]float64 {
	now, at, err := g.nic.counters(ctx)
	rates := map[string]float64{}
	if seconds := at.Sub(g.at).Seconds(); err == nil && g.err == nil && seconds > 0 {
		for name, v := range now {
			if before := g.before[name]; v >= before {
				rates[name] = float64(v-before) / seconds
			}
		}
	}
	g.before, g.at, g.err = now, at, err
	return rates
}

// amount writes a number of bytes, or of things, in at most 5 characters.
func amount(v float64) string {
	if v < 999.5 {
		return fmt.Sprintf("%.0f", v)
	}
	return scaled(v/1000, "k", "M", "G", "T")
}

// scaled writes v with three digits in the first of units, each 1000 of the one before, in which
// it is below 1000.
func scaled(v float64, units ...string) string {
	for v >= 999.5 && len(units) > 1 { // %.3g writes it as 1e+03
		v, units = v/1000, units[1:]
	}
	return fmt.Sprintf("%.3g%s", v, units[0])
}

func checkInterval(d, least time.Duration) error {
	if d < least || d > time.Hour {
		return &option.Error{Option: "--interval", Value: d.String(), Allowed: least.String() + " to 1h"}
	}
	return nil
}
