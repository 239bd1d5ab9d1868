package scaling

import (
	"fmt"
	"math"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// Kinds of growth.
const (
	Constant    = "constant"
	Logarithmic = "logarithmic"
	Linear      = "linear"
)

// Growth is the form that fits a curve best: value = Base + Slope × f(n).
type Growth struct {
	Kind string `json:"kind"`
	// Base and Slope are in the curve's unit; Slope is for each doubling of n if
	// the kind is logarithmic, for each one of n if it is linear.
	Base  float64 `json:"base"`
	Slope float64 `json:"slope"`
	// Residual is the root mean square of what is left, relative to the values.
	Residual float64 `json:"residual"`
}

// Parsimony of Grow: a rise below flat of the base counts as constant, and a form with one
// parameter more must leave less than simpler of the residual.
const (
	flat    = 0.1
	simpler = 0.7
)

// forms are the kinds, simplest first.
var forms = []struct {
	name string
	f    func(n float64) float64
}{
	{Constant, func(float64) float64 { return 0 }},
	{Logarithmic, func(n float64) float64 { return math.Log2(max(n, 1)) }},
	{Linear, func(n float64) float64 { return n }},
}

// Grow fits a constant, a logarithm and a line to the points by least squares of
// relative errors (each point weighs as much as any other, whatever its size) and
// says which to believe: of logarithm and line the one with the smaller residual,
// but a constant if that is about as good or there is next to no rise. Points
// must be positive; of fewer than three the growth is constant.
func Grow(points []Point) Growth {
	var fits []Growth
	for _, form := range forms {
		fits = append(fits, fit(form.name, points, form.f))
	}
	if len(points) < 3 {
		return fits[0]
	}
	best := 1
	if fits[2].Residual < fits[1].Residual {
		best = 2
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range points {
		v := fits[best].Base + fits[best].Slope*forms[best].f(float64(p.N))
		low, high = min(low, v), max(high, v)
	}
	if fits[best].Residual > simpler*fits[0].Residual || fits[best].Slope <= 0 || high-low < flat*low {
		return fits[0]
	}
	return fits[best]
}

// fit solves the normal equations of Σ((base + slope·f(n) − v)/v)².
func fit(kind string, points []Point, f func(float64) float64) Growth {
	r := Growth{Kind: kind}
	if len(points) == 0 {
		return r
	}
	var w, wx, wxx, wy, wxy float64
	for _, p := range points {
		x, v := f(float64(p.N)), float64(p.Value)
		weight := 1 / (v * v)
		w, wx, wxx, wy, wxy = w+weight, wx+weight*x, wxx+weight*x*x, wy+weight*v, wxy+weight*x*v
	}
	// Without two different x there is no slope to find.
	if d := w*wxx - wx*wx; d > 1e-12*w*wxx {
		r.Slope = (w*wxy - wx*wy) / d
	}
	r.Base = (wy - r.Slope*wx) / w
	for _, p := range points {
		e := (r.Base+r.Slope*f(float64(p.N)))/float64(p.Value) - 1
		r.Residual += e * e
	}
	r.Residual = math.Sqrt(r.Residual / float64(len(points)))
	return r
}

// Sentence says the growth in words; of names what n counts.
func (g Growth) Sentence(unit, of string) string {
	if g.Kind == Constant {
		return fmt.Sprintf("constant: %v %s, residual %.0f %%", bench.Figure(g.Base), unit, 100*g.Residual)
	}
	return fmt.Sprintf("%s: %v + %s, residual %.0f %%", g.Kind, bench.Figure(g.Base), g.Each(unit, of), 100*g.Residual)
}

// Each says in a few words what one more costs. Beside a logarithmic axis the name of
// the growth would mislead.
func (g Growth) Each(unit, of string) string {
	switch g.Kind {
	case Linear:
		return fmt.Sprintf("%v %s for each %s", bench.Figure(g.Slope), unit, of)
	case Logarithmic:
		return fmt.Sprintf("%v %s for each doubling", bench.Figure(g.Slope), unit)
	}
	return "the same for all"
}
