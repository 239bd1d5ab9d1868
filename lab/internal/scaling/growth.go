package scaling

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Kinds of growth.
const (
	Constant    = "constant"
	Logarithmic = "logarithmic"
	Linear      = "linear"
)

// Point of a curve.
type Point struct {
	// N is the number of something.
	N int `json:"n"`
	// Value is the median, in the curve's unit; Low and High are the quartiles.
	Value float64 `json:"value"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
}

// Fit is one form fitted to a curve: value = Base + Slope × f(n).
type Fit struct {
	Kind string `json:"kind"`
	// Base and Slope are in the curve's unit; Slope is for each doubling of n if
	// the kind is logarithmic, for each one of n if it is linear.
	Base  float64 `json:"base"`
	Slope float64 `json:"slope"`
	// Residual is the root mean square of what is left, relative to the values.
	Residual float64 `json:"residual"`
}

// Growth says how a curve grows: the form that fits best, and the others.
type Growth struct {
	Fit
	Others []Fit `json:"others"`
}

// Parsimony of Grow: a rise below flat of the base is none, and a form with one
// parameter more must leave less than simpler of the residual.
const (
	flat    = 0.1
	simpler = 0.7
)

// kinds are the forms, simplest first.
var kinds = []struct {
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
	var fits []Fit
	for _, k := range kinds {
		fits = append(fits, fit(k.name, points, k.f))
	}
	best := 0
	if len(points) >= 3 {
		best = 1
		if fits[2].Residual < fits[1].Residual {
			best = 2
		}
		low, high := math.Inf(1), math.Inf(-1)
		for _, p := range points {
			v := fits[best].Base + fits[best].Slope*kinds[best].f(float64(p.N))
			low, high = min(low, v), max(high, v)
		}
		if fits[best].Residual > simpler*fits[0].Residual || fits[best].Slope <= 0 || high-low < flat*low {
			best = 0
		}
	}
	g := Growth{Fit: fits[best]}
	for i, f := range fits {
		if i != best {
			g.Others = append(g.Others, f)
		}
	}
	return g
}

// fit solves the normal equations of Σ((base + slope·f(n) − v)/v)².
func fit(kind string, points []Point, f func(float64) float64) Fit {
	var w, wx, wxx, wy, wxy float64
	for _, p := range points {
		weight := 1 / (p.Value * p.Value)
		x := f(float64(p.N))
		w += weight
		wx += weight * x
		wxx += weight * x * x
		wy += weight * p.Value
		wxy += weight * x * p.Value
	}
	r := Fit{Kind: kind}
	if len(points) == 0 {
		return r
	}
	// Without two different x there is no slope to find.
	if d := w*wxx - wx*wx; d > 1e-12*w*wxx {
		r.Slope = (w*wxy - wx*wy) / d
	}
	r.Base = (wy - r.Slope*wx) / w
	var squares float64
	for _, p := range points {
		e := (r.Base + r.Slope*f(float64(p.N)) - p.Value) / p.Value
		squares += e * e
	}
	r.Residual = math.Sqrt(squares / float64(len(points)))
	return r
}

// Sentence says the growth in words; of names what n counts.
func (g Growth) Sentence(unit, of string) string {
	switch g.Kind {
	case Linear:
		return fmt.Sprintf("linear: %s + %s %s for each %s, residual %.0f %%", short(g.Base), short(g.Slope), unit, of, 100*g.Residual)
	case Logarithmic:
		return fmt.Sprintf("logarithmic: %s + %s %s for each doubling, residual %.0f %%", short(g.Base), short(g.Slope), unit, 100*g.Residual)
	}
	return fmt.Sprintf("constant: %s %s, residual %.0f %%", short(g.Base), unit, 100*g.Residual)
}

// Each says in a few words what one more costs. Beside a logarithmic axis the name of
// the growth would mislead.
func (g Growth) Each(unit, of string) string {
	slope := g.Slope
	if unit == "us" && slope < 0.1 {
		slope, unit = 1e3*slope, "ns"
	}
	switch g.Kind {
	case Linear:
		return fmt.Sprintf("%s %s for each %s", short(slope), unit, of)
	case Logarithmic:
		return fmt.Sprintf("%s %s for each doubling", short(slope), unit)
	}
	return "the same for all"
}

// short prints a figure with three digits.
func short(v float64) string {
	digits := 2
	for n := math.Abs(v); n != 0 && n < 1 && digits < 12; n *= 10 {
		digits++
	}
	for n := math.Abs(v); n >= 10 && digits > 0; n /= 10 {
		digits--
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
