// Package fit finds the parameters of the 1997 platforms from published figures.
//
// A platform has four parameters of its own: the bus's read and write bandwidth,
// its overhead for each transfer, and the hosts' fixed cost. Four more belong to
// the NIC and its firmware and are the same on every platform: the cost of a
// decision, of a packet, of the end of an incoming transfer, and of a netTx pulse.
// Everything else (link rate and latency, control message, buffers) is published
// and not fitted.
//
// The search is a Nelder-Mead simplex over the shared parameters around one over
// each platform's own. It is deterministic.
package fit

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

// Own are the parameters of one platform.
type Own struct {
	Read     float64 `json:"read_mb_s"`
	Write    float64 `json:"write_mb_s"`
	Overhead float64 `json:"overhead_us"`
	Host     float64 `json:"host_us"`
	// Of a platform with firmware of its own.
	Completion float64 `json:"completion_us,omitempty"`
	Link       float64 `json:"link_mb_s,omitempty"`
}

// ownOf makes one from the values that a search is about.
func ownOf(x []float64) Own {
	o := Own{Read: x[0], Write: x[1], Overhead: x[2], Host: x[3]}
	if len(x) > 4 {
		o.Completion, o.Link = x[4], x[5]
	}
	return o
}

// Shared are the parameters of the NIC, in microseconds.
type Shared struct {
	Decision   float64 `json:"decision_us"`
	Packet     float64 `json:"packet_us"`
	Completion float64 `json:"completion_us"`
	Pulse      float64 `json:"pulse_us"`
}

func sharedOf(x []float64) Shared { return Shared{x[0], x[1], x[2], x[3]} }

// Parameters of all platforms.
type Parameters struct {
	Shared    Shared         `json:"shared"`
	Platforms map[string]Own `json:"platforms" help:"by name"`
}

// Effort bounds the search: steps of the outer and of each inner simplex.
type Effort struct {
	Outer, Inner int
}

// DefaultEffort takes about a minute; more, or a second start from where it ended, does not improve the fit.
var DefaultEffort = Effort{Outer: 45, Inner: 60}

type observation struct {
	row   published.Row
	sigma float64 // relative
}

// platform holds what the inner search works on.
type platform struct {
	name         string
	base         *profile.Profile
	observations []observation
	own          []float64
}

// resolution is the relative error at which a row counts as one standard
// deviation off, unless its last digit is coarser.
const resolution = 0.01

// looseResolution is that of rows marked so: figures of a payload or a firmware of which the
// model has no other.
const looseResolution = 0.05

// Fit fits the platforms to those rows that say so and for which use says yes. It fails with the cause of the end of ctx when that ends first.
func Fit(ctx context.Context, rows []published.Row, use func(published.Row) bool, e Effort) (Parameters, error) {
	platforms, err := prepare(rows, use)
	if err != nil {
		return Parameters{}, err
	}
	total := func(shared []float64) (float64, error) {
		s, penalty := clamp(shared, sharedLimits)
		for _, p := range platforms {
			own, cost, err := minimise(func(x []float64) (float64, error) { return p.cost(ctx, s, x) }, p.own, 0.03, e.Inner)
			if err != nil {
				return 0, err
			}
			p.own = own
			penalty += cost
		}
		return penalty, nil
	}
	shared, _, err := minimise(total, sharedStart, 0.25, e.Outer)
	if err != nil {
		return Parameters{}, err
	}
	if _, err := total(shared); err != nil {
		return Parameters{}, err
	}
	shared, _ = clamp(shared, sharedLimits)
	result := Parameters{Shared: sharedOf(rounded(shared, sharedDigits)), Platforms: map[string]Own{}}
	for _, p := range platforms {
		x, _ := clamp(p.own, knowledge[p.name].limits)
		result.Platforms[p.name] = ownOf(rounded(x, ownDigits))
	}
	return result, nil
}

// Digits that profiles are written with, as powers of ten.
var (
	sharedDigits = []float64{100, 100, 100, 100}
	ownDigits    = []float64{10, 10, 100, 10, 100, 10}
)

func rounded(x, digits []float64) []float64 {
	out := slices.Clone(x)
	for i := range out {
		out[i] = math.Round(x[i]*digits[i]) / digits[i]
	}
	return out
}

func prepare(rows []published.Row, use func(published.Row) bool) ([]*platform, error) {
	byName := map[string]*platform{}
	for name, k := range knowledge {
		base, err := profile.Hosts.Load(name)
		if err != nil {
			return nil, err
		}
		byName[name] = &platform{name: name, base: base, own: slices.Clone(k.start)}
	}
	for _, r := range rows {
		if !r.Fit || !use(r) {
			continue
		}
		if p := byName[r.Platforms[0]]; p != nil {
			sigma := resolution
			if r.Loose {
				sigma = looseResolution
			}
			p.observations = append(p.observations, observation{r, max(sigma, 0.5/r.Figure.Low)})
		}
	}
	var platforms []*platform
	for _, name := range Names() {
		platforms = append(platforms, byName[name])
	}
	return platforms, nil
}

// Names returns the platforms that are fitted, sorted.
func Names() []string { return slices.Sorted(maps.Keys(knowledge)) }

// Apply returns a copy of a 1997 platform's profile with other parameters.
func Apply(base *profile.Profile, s Shared, o Own) *profile.Profile {
	p := *base
	bus := profile.Bus{FullDuplex: base.Sender.FullDuplex, Read: profile.NewCost(o.Overhead, o.Read), Write: profile.NewCost(o.Overhead, o.Write)}
	p.Sender, p.Receiver = bus, bus
	p.Host = profile.Micros(o.Host)
	p.NIC.Decision, p.NIC.Packet, p.NIC.Completion = profile.Micros(s.Decision), profile.Micros(s.Packet), profile.Micros(s.Completion)
	p.Link.Pulse.Overhead = profile.Micros(s.Pulse)
	if o.Link != 0 {
		p.NIC.Completion = profile.Micros(o.Completion)
		p.Link.Pulse = profile.NewCost(s.Pulse, o.Link)
	}
	return &p
}

// Loader returns the profiles with these parameters, for published.NewModel.
// Platforms that were not fitted are loaded as they are.
func (p Parameters) Loader() func(name string) (*profile.Profile, error) {
	return func(name string) (*profile.Profile, error) {
		base, err := profile.Hosts.Load(name)
		if err != nil {
			return nil, err
		}
		own, ok := p.Platforms[name]
		if !ok {
			return base, nil
		}
		return Apply(base, p.Shared, own), nil
	}
}

// cost is the sum of squared deviations: of the rows, of what else is known about
// the platform, and of parameters outside their limits.
func (p *platform) cost(ctx context.Context, shared, own []float64) (float64, error) {
	k := knowledge[p.name]
	x, sum := clamp(own, k.limits)
	candidate := Apply(p.base, sharedOf(shared), ownOf(x))
	m := published.NewModel(ctx, func(string) (*profile.Profile, error) { return candidate, nil })
	off, err := squares(m, p.observations)
	return sum + off + k.deviations(x), err
}

func squares(m *published.Model, observations []observation) (sum float64, err error) {
	for _, o := range observations {
		v, err := m.Compute(o.row)
		if err != nil {
			return 0, err
		}
		d := (v/o.row.Figure.Low - 1) / o.sigma
		sum += d * d
	}
	return sum, nil
}

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
	x, _, err := minimise(func(x []float64) (float64, error) {
		x, sum := clamp(x, transferKnowledge.limits)
		candidate := ApplyTransfer(base, Interface{x[0], x[1]})
		m := published.NewModel(ctx, profile.Hosts.Load).On(func(string) (*profile.MemorySystem, error) { return candidate, nil })
		off, err := squares(m, fitted)
		return sum + off + transferKnowledge.deviations(x), err
	}, transferKnowledge.start, 0.25, transferSteps)
	if err != nil {
		return Interface{}, err
	}
	x, _ = clamp(x, transferKnowledge.limits)
	return Interface{math.Round(x[0]), math.Round(x[1])}, nil
}

// ApplyTransfer returns a copy of a memory system with other parameters.
func ApplyTransfer(base *profile.MemorySystem, i Interface) *profile.MemorySystem {
	s := *base
	cycles := func(n float64) profile.Time { return profile.Time(math.Round(n * float64(s.NIC.Cycle))) }
	s.NIC.Start, s.NIC.Frame = cycles(i.Start), cycles(i.Frame)
	return &s
}
