package fit

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

type vertex struct {
	x    []float64
	cost float64
}

// simplex minimises f from start by the Nelder-Mead method, in a given number of
// steps. The first simplex is start with each coordinate enlarged by the factor
// 1+spread in turn.
func simplex(f func([]float64) float64, start []float64, spread float64, steps int) ([]float64, float64) {
	n := len(start)
	s := make([]vertex, n+1)
	for i := range s {
		x := slices.Clone(start)
		if i > 0 {
			x[i-1] *= 1 + spread
		}
		s[i] = vertex{x, f(x)}
	}
	byCost := func(a, b vertex) int { return cmp.Compare(a.cost, b.cost) }
	slices.SortStableFunc(s, byCost)
	for range steps {
		step(s, f)
		slices.SortStableFunc(s, byCost)
	}
	return s[0].x, s[0].cost
}

// minimise is simplex of a function that can fail. After the first failure, which it returns, f is
// not called again.
func minimise(f func([]float64) (float64, error), start []float64, spread float64, steps int) (x []float64, cost float64, failure error) {
	x, cost = simplex(func(x []float64) (cost float64) {
		if failure == nil {
			cost, failure = f(x)
		}
		return cost
	}, start, spread, steps)
	return x, cost, failure
}

// deviations is the sum of squared deviations of values from what is expected of them.
func (k *known) deviations(x []float64) (sum float64) {
	for i, e := range k.expected {
		if e.sigma > 0 {
			d := (x[i] - e.value) / e.sigma
			sum += d * d
		}
	}
	return sum
}

// step replaces the worst vertex of a sorted simplex, or shrinks towards the best.
func step(s []vertex, f func([]float64) float64) {
	n := len(s) - 1
	centre := make([]float64, n)
	for _, v := range s[:n] {
		for j := range centre {
			centre[j] += v.x[j] / float64(n)
		}
	}
	along := func(t float64) vertex {
		x := make([]float64, n)
		for j := range x {
			x[j] = centre[j] + t*(s[n].x[j]-centre[j])
		}
		return vertex{x, f(x)}
	}
	reflected := along(-1)
	switch {
	case reflected.cost < s[0].cost:
		if expanded := along(-2); expanded.cost < reflected.cost {
			reflected = expanded
		}
		s[n] = reflected
		return
	case reflected.cost < s[n-1].cost:
		s[n] = reflected
		return
	}
	contraction := 0.5
	if reflected.cost < s[n].cost {
		contraction = -0.5
	}
	if c := along(contraction); c.cost < min(reflected.cost, s[n].cost) {
		s[n] = c
		return
	}
	for i := 1; i <= n; i++ {
		for j := range s[i].x {
			s[i].x[j] = s[0].x[j] + 0.5*(s[i].x[j]-s[0].x[j])
		}
		s[i].cost = f(s[i].x)
	}
}

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
