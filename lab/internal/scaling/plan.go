package scaling

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// Plan holds what to measure, and how much of it.
type Plan struct {
	Curves []string `flag:"curves" split:"comma" help:"which to measure (default all): {curves}"`
	// MostVIs, MostRegions and MostBytes end the curves: 1 to 8192, 1 to 1,000,000
	// and 0 to 16 MiB.
	MostVIs     int `flag:"max-vis" default:"4096" help:"largest number of VIs"`
	MostRegions int `flag:"max-regions" default:"100000" help:"largest number of regions at each NIC"`
	MostBytes   int
	// For is at least a millisecond.
	For time.Duration `flag:"duration" default:"300ms" help:"how long to measure each point, about"`
	// Cores of the two processes of the sizes; the first is also that of all else.
	// None to pin nothing.
	Cores []int
	// Progress, if not nil, is called after each of Steps points.
	Progress bench.Progress
}

// Limits of a Plan.
const (
	mostVIs     = 8192
	mostRegions = 1_000_000
	mostBytes   = 16 << 20
	leastTime   = time.Millisecond
	mostTime    = time.Minute
)

// ErrPlan is wrapped by the errors about a Plan that cannot be carried out.
var ErrPlan = errors.New("bad plan")

// Result is all that was measured.
type Result struct {
	Curves []Curve  `json:"curves"`
	Memory []Memory `json:"memory"`
}

// Names returns what Plan.Curves can ask for.
func Names() (names []string) {
	for _, c := range new(Plan).curves(nil) {
		names = append(names, c.name)
	}
	return names
}

// Validate checks a Plan. Errors wrap ErrPlan.
func (p *Plan) Validate() error {
	bad := func(what string, is any, low, high any) error {
		return fmt.Errorf("%w: %s %v (%v to %v)", ErrPlan, what, is, low, high)
	}
	names := Names()
	for _, c := range p.Curves {
		if !slices.Contains(names, c) {
			return fmt.Errorf("%w: curve %q (%s)", ErrPlan, c, strings.Join(names, ", "))
		}
	}
	switch {
	case p.MostVIs < 1 || p.MostVIs > mostVIs:
		return bad("number of VIs", p.MostVIs, 1, mostVIs)
	case p.MostRegions < 1 || p.MostRegions > mostRegions:
		return bad("number of regions", p.MostRegions, 1, mostRegions)
	case p.MostBytes < 0 || p.MostBytes > mostBytes:
		return bad("message size", p.MostBytes, 0, mostBytes)
	case p.For < leastTime || p.For > mostTime:
		return bad("duration", p.For, leastTime, mostTime)
	}
	return nil
}

// core is where one process measures, -1 for anywhere.
func (p *Plan) core() int {
	if len(p.Cores) == 0 {
		return -1
	}
	return p.Cores[0]
}

func (p *Plan) asks(name string) bool { return len(p.Curves) == 0 || slices.Contains(p.Curves, name) }

// curve holds what a Plan can ask for: its name, how many steps it takes, and how it is measured.
type curve struct {
	name  string
	steps int
	run   func(context.Context) error
}

// curves puts what it measures into r.
func (p *Plan) curves(r *Result) []curve {
	add := func(name, what, of, unit string, points []Point) {
		r.Curves = append(r.Curves, Curve{name, what, of, unit, points, Grow(points)})
	}
	vis, sizes := len(upTo(viCounts, p.MostVIs)), 0
	for _, n := range sizeCounts {
		if n <= p.MostBytes {
			sizes++
		}
	}
	turns := func(name, what string, way turning, setup bool) curve {
		return curve{name, vis, func(ctx context.Context) error {
			costs, making, err := p.vis(ctx, way)
			add(name, what, "VI", "ns", costs)
			if setup {
				add(name+"-setup", "creating and connecting one more VI", "VI", "us", making)
			}
			return err
		}}
	}
	latencies := func(wire, over string) curve {
		return curve{"sizes-" + wire, sizes, func(ctx context.Context) error {
			costs, err := p.sizes(ctx, wire)
			add("sizes-"+wire, "one-way latency over "+over, "byte", "us", costs)
			return err
		}}
	}
	return []curve{
		turns("vis", "message, VIs taking turns", inTurn, true),
		turns("idle-vis", "message on one VI, the others idle", oneOnly, false),
		turns("shared-cq", "message, VIs taking turns, one CQ for all", sharedCQ, false),
		{"cqs", len(upTo(viCounts, min(sharers, p.MostVIs))), func(ctx context.Context) error {
			costs, err := p.cqs(ctx)
			add("cqs", fmt.Sprintf("message, %d VIs that share CQs", min(sharers, p.MostVIs)), "CQ", "ns", costs)
			return err
		}},
		{"regions", len(upTo(regionCounts, p.MostRegions)), func(ctx context.Context) error {
			costs, setup, err := p.regions(ctx)
			add("regions", "message between regions picked at random", "region", "ns", costs)
			add("regions-setup", "registering one more region", "region", "us", setup)
			return err
		}},
		latencies("memory", "a memory wire"),
		latencies("shm", "shm, two processes"),
		{"memory", 3, func(ctx context.Context) (err error) {
			r.Memory, err = p.memory(ctx)
			return err
		}},
	}
}

// Steps is the number of times that Progress is called.
func (p *Plan) Steps() (total int) {
	for _, c := range p.curves(nil) {
		if p.asks(c.name) {
			total += c.steps
		}
	}
	return total
}

// Run measures.
func (p *Plan) Run(ctx context.Context) (r Result, err error) {
	if err := p.Validate(); err != nil {
		return r, err
	}
	r.Curves, r.Memory = []Curve{}, []Memory{}
	for _, c := range p.curves(&r) {
		if !p.asks(c.name) {
			continue
		}
		if err := bench.OnCore(ctx, p.core(), func() error { return c.run(ctx) }); err != nil {
			return r, fmt.Errorf("curve %s: %w", c.name, err)
		}
	}
	return r, nil
}
