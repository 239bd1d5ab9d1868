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
