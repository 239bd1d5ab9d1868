package fit

import (
	"context"
	"math"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

// Interface are the parameters of the NIC on the EDT paper's memory bus, in its cycles.
type Interface struct {
	Start float64 `json:"start_cycles"` // initiation and interrupt of a DMA transfer
	Frame float64 `json:"frame_cycles"` // the message layer's work for a frame, at each end
}

// transferSystem is the memory system that is fitted.
const transferSystem = "sonic-via"

// transferKnowledge holds what is known of start and frame before any row is looked at. Two ends
// of one range leave a line of pairs, on which the two grow together, so one of them needs an
// expectation: the message layer's work for a frame is like that of Trapeze's firmware for a
// packet, 0.49 us (nic.packet of the platforms of 1997), which are 49 cycles of 10 ns; a fifth
// more or less is one standard deviation.
var transferKnowledge = known{
	start:    []float64{40, 49},
	limits:   []limit{{1, 1000}, {1, 1000}},
	expected: []expectation{{}, {49, 10}},
}

// transferSteps of the simplex: more do not improve the fit.
const transferSteps = 80

// Transfer fits the NIC of the EDT paper's memory system to those rows of it that say so:
// the two ends of the reduction against cache-coherent DMA at the full rate.
func Transfer(ctx context.Context, rows []published.Row) (Interface, error) {
	base, err := profile.Systems.Load(transferSystem)
	if err != nil {
		return Interface{}, err
	}
	var fitted []observation
	for _, r := range rows {
		if r.Fit && r.Platforms[0] == transferSystem {
			fitted = append(fitted, observation{r, max(resolution, 0.5/r.Figure.Low)})
		}
	}
	x, _, err := minimise(func(x []float64) (float64, error) { return transferCost(ctx, base, fitted, x) }, transferKnowledge.start, 0.25, transferSteps)
	if err != nil {
		return Interface{}, err
	}
	x, _ = clamp(x, transferKnowledge.limits)
	return Interface{math.Round(x[0]), math.Round(x[1])}, nil
}

// transferCost is the sum of squared deviations of the rows, from the expectations, and of
// parameters outside their limits.
func transferCost(ctx context.Context, base *profile.MemorySystem, rows []observation, x []float64) (float64, error) {
	x, sum := clamp(x, transferKnowledge.limits)
	candidate := ApplyTransfer(base, Interface{x[0], x[1]})
	m := published.NewModel(ctx, profile.Hosts.Load).On(func(string) (*profile.MemorySystem, error) { return candidate, nil })
	off, err := squares(m, rows)
	return sum + off + transferKnowledge.deviations(x), err
}

// ApplyTransfer returns a copy of a memory system with other parameters.
func ApplyTransfer(base *profile.MemorySystem, i Interface) *profile.MemorySystem {
	s := *base
	cycles := func(n float64) profile.Time { return profile.Time(math.Round(n * float64(s.NIC.Cycle))) }
	s.NIC.Start, s.NIC.Frame = cycles(i.Start), cycles(i.Frame)
	return &s
}
