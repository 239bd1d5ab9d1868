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

// Plan is what to measure, and how much of it.
type Plan struct {
	// Curves are names of Curves; none for all of them.
	Curves []string
	// MostVIs, MostRegions and MostBytes end the curves: 1 to 8192, 1 to 1,000,000
	// and 0 to 16 MiB.
	MostVIs, MostRegions, MostBytes int
	// For is how long each point is measured, at least a millisecond.
	For time.Duration
	// Cores of the two processes of the sizes; the first is also that of all else.
	// None to pin nothing.
	Cores []int
	// Progress, if not nil, is called after each of Steps points.
	Progress func()
}

// Default is the whole of what issue and documentation ask for.
func Default() Plan {
	return Plan{MostVIs: 4096, MostRegions: 100_000, MostBytes: 16 << 20, For: 300 * time.Millisecond}
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

// Memories is the name by which a Plan asks for what things take in memory.
const Memories = "memory"

// names are what a Plan can ask for.
var names = []string{"vis", "idle-vis", "shared-cq", "cqs", "regions", "sizes-memory", "sizes-shm", Memories}

// Names returns what Plan.Curves can ask for.
func Names() []string { return slices.Clone(names) }

// Validate checks a Plan. Errors wrap ErrPlan.
func (p *Plan) Validate() error {
	bad := func(what string, is any, low, high any) error {
		return fmt.Errorf("%w: %s %v (%v to %v)", ErrPlan, what, is, low, high)
	}
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

func (p *Plan) step() {
	if p.Progress != nil {
		p.Progress()
	}
}

// Steps is how often Progress is called.
func (p *Plan) Steps() int {
	sizes := 0
	for _, n := range sizeCounts {
		if n <= p.MostBytes {
			sizes++
		}
	}
	vis := len(upTo(viCounts, p.MostVIs))
	points := map[string]int{"vis": vis, "idle-vis": vis, "shared-cq": vis, "cqs": len(upTo(viCounts, min(sharers, p.MostVIs))),
		"regions": len(upTo(regionCounts, p.MostRegions)), "sizes-memory": sizes, "sizes-shm": sizes, Memories: 3}
	total := 0
	for _, name := range names {
		if p.asks(name) {
			total += points[name]
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
	add := func(name, what, of, unit string, points []Point) {
		r.Curves = append(r.Curves, Curve{name, what, of, unit, points, Grow(points)})
	}
	type curve struct {
		name string
		run  func() error
	}
	for _, c := range []curve{
		{"vis", func() error {
			costs, setup, err := p.vis(ctx, false)
			add("vis", "message, VIs taking turns", "VI", "ns", costs)
			add("vis-setup", "creating and connecting one more VI", "VI", "us", setup)
			return err
		}},
		{"idle-vis", func() error {
			costs, err := p.idle(ctx)
			add("idle-vis", "message on one VI, the others idle", "VI", "ns", costs)
			return err
		}},
		{"shared-cq", func() error {
			costs, _, err := p.vis(ctx, true)
			add("shared-cq", "message, VIs taking turns, one CQ for all", "VI", "ns", costs)
			return err
		}},
		{"cqs", func() error {
			costs, err := p.cqs(ctx)
			add("cqs", fmt.Sprintf("message, %d VIs that share CQs", min(sharers, p.MostVIs)), "CQ", "ns", costs)
			return err
		}},
		{"regions", func() error {
			costs, setup, err := p.regions(ctx)
			add("regions", "message between regions picked at random", "region", "ns", costs)
			add("regions-setup", "registering one more region", "region", "us", setup)
			return err
		}},
		{"sizes-memory", func() error {
			costs, err := p.sizes(ctx, "memory")
			add("sizes-memory", "one-way latency over a memory wire", "byte", "us", costs)
			return err
		}},
		{"sizes-shm", func() error {
			costs, err := p.sizes(ctx, "shm")
			add("sizes-shm", "one-way latency over shm, two processes", "byte", "us", costs)
			return err
		}},
		{Memories, func() error {
			var err error
			r.Memory, err = p.memory(ctx)
			return err
		}},
	} {
		if !p.asks(c.name) {
			continue
		}
		if err := bench.OnCore(p.core(), c.run); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return r, fmt.Errorf("curve %s: %w", c.name, err)
		}
	}
	return r, nil
}
