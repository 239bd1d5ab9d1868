package telemetrycmd

import (
	"context"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/internal/pause"
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
	Interval time.Duration `flag:"interval,i" default:"500ms" range:"0s..1h" help:"time between two looks, from which rates come; 0 for none"`
}

func (x *commands) ps(ctx context.Context, f *psFlags, _ []string) error {
	var s sampler
	defer s.close()
	samples := s.next(ctx, nil)
	if f.Interval > 0 {
		if err := pause.For(ctx, f.Interval); err != nil {
			return err
		}
		samples = s.next(ctx, nil)
	}
	x.noteUnresponsive(s.host, "")
	r := psReport{NICs: []psNIC{}, Unresponsive: s.host.unresponsive}
	for _, one := range samples {
		r.NICs = append(r.NICs, psNIC{one.nic, one.rates["bytes_sent"], one.rates["bytes_received"]})
	}
	if len(r.NICs) == 0 {
		x.Note("no process of this host has a NIC open that this user may look at")
	}
	return x.Report(r)
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
