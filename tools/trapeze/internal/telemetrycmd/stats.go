package telemetrycmd

import (
	"context"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
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

// word is the only argument, empty if there is none.
func word(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func (x *commands) stats(ctx context.Context, _ *cmdtable.NoFlags, args []string) error {
	h := x.look(ctx, word(args))
	defer h.close()
	nics, err := h.choose(word(args))
	if err != nil {
		return err
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
	return x.Report(r)
}
