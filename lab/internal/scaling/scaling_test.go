package scaling_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	// Make "emu:" addresses known.
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/lab/internal/scaling"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a plan that takes little time.
func small(curves ...string) scaling.Plan {
	return scaling.Plan{Curves: curves, MostVIs: 9, MostRegions: 20, MostBytes: 64, For: time.Millisecond}
}

func TestRun(t *testing.T) {
	p := small("vis", "idle-vis", "shared-cq", "cqs", "regions", "memory")
	steps := 0
	p.Progress = func() { steps++ }
	r, err := p.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if steps != p.Steps() {
		t.Errorf("%d steps of progress, %d were foretold", steps, p.Steps())
	}
	want := map[string][]int{
		"vis": {1, 4, 9}, "vis-setup": {1, 4, 9}, "idle-vis": {1, 4, 9}, "shared-cq": {1, 4, 9},
		"cqs": {1, 4, 9}, "regions": {1, 10, 20}, "regions-setup": {1, 10, 20},
	}
	for _, c := range r.Curves {
		var ns []int
		for _, p := range c.Points {
			ns = append(ns, p.N)
			if !(p.Value > 0 && p.Low <= p.Value && p.Value <= p.High) {
				t.Errorf("%s: point %+v", c.Name, p)
			}
		}
		if !slices.Equal(ns, want[c.Name]) {
			t.Errorf("%s has points at %v, want %v", c.Name, ns, want[c.Name])
		}
		delete(want, c.Name)
		if c.Growth.Kind == "" || len(c.Growth.Others) != 2 || c.What == "" || c.Unit == "" || c.Of == "" {
			t.Errorf("%+v", c)
		}
	}
	if len(want) != 0 {
		t.Errorf("missing: %v", want)
	}
	if len(r.Memory) != 3 {
		t.Fatalf("%+v", r.Memory)
	}
	// Rings and doorbell pages are pages; a VI has a file behind its rings.
	if vi := r.Memory[0]; vi.Host <= 0 || vi.Device <= 0 || vi.Files < 1 || vi.Total != vi.Host+vi.Device+vi.Shared {
		t.Errorf("%+v", vi)
	}
	if region := r.Memory[2]; region.Host <= 0 || region.Files != 0 {
		t.Errorf("%+v", region)
	}
}

func TestRunEndsWithContext(t *testing.T) {
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(context.Background())
	p := small("vis")
	p.For = time.Minute
	time.AfterFunc(50*time.Millisecond, func() { cancel(stopped) })
	if _, err := p.Run(ctx); !errors.Is(err, stopped) {
		t.Errorf("got %v", err)
	}
}

func TestValidate(t *testing.T) {
	good := scaling.Plan{MostVIs: 4096, MostRegions: 100_000, MostBytes: 16 << 20, For: 300 * time.Millisecond}
	for name, spoil := range map[string]func(*scaling.Plan){
		"curve":        func(p *scaling.Plan) { p.Curves = []string{"speed"} },
		"no VI":        func(p *scaling.Plan) { p.MostVIs = 0 },
		"VIs":          func(p *scaling.Plan) { p.MostVIs = 8193 },
		"no region":    func(p *scaling.Plan) { p.MostRegions = 0 },
		"regions":      func(p *scaling.Plan) { p.MostRegions = 1_000_001 },
		"negative":     func(p *scaling.Plan) { p.MostBytes = -1 },
		"bytes":        func(p *scaling.Plan) { p.MostBytes = 16<<20 + 1 },
		"no time":      func(p *scaling.Plan) { p.For = 0 },
		"too long":     func(p *scaling.Plan) { p.For = time.Hour },
		"empty string": func(p *scaling.Plan) { p.Curves = []string{""} },
	} {
		p := good
		spoil(&p)
		if _, err := p.Run(context.Background()); !errors.Is(err, scaling.ErrPlan) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

// points follow f, with errors of up to noise.
func points(t *rapid.T, f func(n float64) float64, noise float64) []scaling.Point {
	var ps []scaling.Point
	for _, n := range []int{1, 4, 16, 64, 256, 1024, 4096} {
		v := f(float64(n)) * (1 + noise*rapid.Float64Range(-1, 1).Draw(t, "noise"))
		ps = append(ps, scaling.Point{N: n, Value: v, Low: v, High: v})
	}
	return ps
}

// TestGrow names the growth of curves that are known.
func TestGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Float64Range(100, 10_000).Draw(t, "base")
		for kind, f := range map[string]func(n float64) float64{
			scaling.Constant:    func(float64) float64 { return base },
			scaling.Logarithmic: func(n float64) float64 { return base * (1 + math.Log2(n)/4) },
			scaling.Linear:      func(n float64) float64 { return base * (1 + n/100) },
		} {
			g := scaling.Grow(points(t, f, 0.04))
			if g.Kind != kind {
				t.Errorf("%s growth from %g is called %+v", kind, base, g)
			}
			if !strings.HasPrefix(g.Sentence("ns", "VI"), kind) {
				t.Errorf("%q", g.Sentence("ns", "VI"))
			}
			if math.Abs(g.Base-base) > 0.2*base {
				t.Errorf("%s: base %g, want %g", kind, g.Base, base)
			}
		}
	})
	exact := scaling.Grow([]scaling.Point{{N: 0, Value: 3}, {N: 10, Value: 23}, {N: 100, Value: 203}})
	if math.Abs(exact.Base-3) > 1e-9 || math.Abs(exact.Slope-2) > 1e-9 || exact.Residual > 1e-9 {
		t.Errorf("3 + 2n is %+v", exact)
	}
	for _, few := range [][]scaling.Point{nil, {{N: 1, Value: 2}}, {{N: 1, Value: 2}, {N: 2, Value: 9}}} {
		if g := scaling.Grow(few); g.Kind != scaling.Constant || math.IsNaN(g.Base) {
			t.Errorf("of %v: %+v", few, g)
		}
	}
}
