package scaling_test

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	// Make "emu:" addresses known.
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
	"github.com/trapeze-nic/trapeze/lab/internal/scaling"
)

// TestMain makes this program also the workers of measurements.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == bench.WorkerCommand {
		if err := bench.RunWorker(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// small is a plan that takes little time.
func small(curves ...string) scaling.Plan {
	return scaling.Plan{Curves: curves, MostVIs: 9, MostRegions: 20, Local: bench.Local{For: time.Millisecond}}
}

func TestRun(t *testing.T) {
	p := small()
	steps := 0
	r := must.Get(p.Run(context.Background(), func() { steps++ }))(t)
	should.Be(t, steps, p.Steps(), "steps of progress, were foretold")
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
		should.Same(t, ns, want[c.Name], "%s has points", c.Name)
		delete(want, c.Name)
		if c.Growth.Kind == "" || c.What == "" || c.Unit == "" || c.Of == "" {
			t.Errorf("%+v", c)
		}
	}
	should.Be(t, len(want), 0, "missing: %v", want)
	must.Be(t, len(r.Memory), 3, "%+v", r.Memory)
	// Rings and doorbell pages are pages; a VI has a file behind its rings.
	if vi := r.Memory[0]; vi.Heap <= 0 || vi.Files < 1 || math.Abs(float64(vi.Heap+vi.Shared-vi.Total)) > 1 {
		t.Errorf("%+v", vi)
	}
	if region := r.Memory[2]; region.Files > 0.5 {
		t.Errorf("%+v", region)
	}
}

// points follow f, with errors of up to noise.
func points(t *rapid.T, f func(n float64) float64, noise float64) []scaling.Point {
	var ps []scaling.Point
	for _, n := range []int{1, 4, 16, 64, 256, 1024, 4096} {
		v := f(float64(n)) * (1 + noise*rapid.Float64Range(-1, 1).Draw(t, "noise"))
		ps = append(ps, scaling.Point{N: n, Value: bench.Figure(v), Low: bench.Figure(v), High: bench.Figure(v)})
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
			should.Be(t, g.Kind, kind, "growth from %g is called %+v", base, g)
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
