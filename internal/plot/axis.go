package plot

import (
	"math"
	"strconv"
	"strings"
)

// Axis of a chart.
type Axis struct {
	Label string // with its unit
	Log2  bool   // logarithmic, ticks at powers of two
	Log10 bool   // logarithmic, ticks at powers of ten, and between them if there are few
	Zero  bool   // begins at 0
	Bytes bool   // ticks are written 128, 1K, 64K, 1M
	Time  bool   // of nanoseconds: ticks are written 500 ns, 2 us, 1 ms
	Exact bool   // ends where the values end, not at the next tick
}

// scale maps values to coordinates.
type scale struct {
	Axis
	low, high float64 // values
	from, to  float64 // coordinates
}

func newScale(a Axis, low, high, from, to float64) scale {
	if base := a.base(); base > 0 {
		const least = 1e-9 // of the highest: a logarithmic axis has no zero
		power := func(v float64) float64 { return math.Log2(v) / math.Log2(base) }
		high = max(high, math.SmallestNonzeroFloat32)
		low = math.Pow(base, math.Floor(power(max(low, high*least))+1e-9))
		high = math.Pow(base, math.Ceil(power(max(high, 2*low))-1e-9))
		return scale{a, low, high, from, to}
	}
	if a.Zero {
		low = 0
	}
	if high <= low {
		high = low + 1
	}
	if a.Exact {
		return scale{a, low, high, from, to}
	}
	step := a.step(high - low)
	if !a.Zero {
		low = math.Floor(low/step) * step
	}
	return scale{a, low, math.Ceil(high/step-1e-9) * step, from, to}
}

// base is that of a logarithmic axis, and 0 of another.
func (a Axis) base() float64 {
	switch {
	case a.Log2:
		return 2
	case a.Log10:
		return 10
	}
	return 0
}

// step returns the distance of ticks over a span.
func (a Axis) step(span float64) float64 {
	if a.Bytes {
		return math.Exp2(math.Ceil(math.Log2(span / 8)))
	}
	return niceStep(span)
}

func (s scale) at(v float64) float64 {
	share := (v - s.low) / (s.high - s.low)
	if s.base() > 0 {
		share = math.Log2(max(v, s.low)/s.low) / math.Log2(s.high/s.low)
	}
	return s.from + share*(s.to-s.from)
}

// mostTicks is about the number of powers of the base that are marked; of more every second or third is.
const mostTicks = 14

// fewDecades is of how many powers of ten an axis has ticks between them too.
const fewDecades = 4

func (s scale) ticks() []float64 {
	var t []float64
	if factor := s.base(); factor > 0 {
		between := []float64{1}
		if s.Log10 && math.Log10(s.high/s.low) < fewDecades {
			between = []float64{1, 2, 5}
		}
		for math.Log2(s.high/s.low)/math.Log2(factor) > mostTicks {
			factor *= s.base()
		}
		for at := s.low; at < s.high*1.0001; at *= factor {
			for _, m := range between {
				if v := m * at; v < s.high*1.0001 {
					t = append(t, v)
				}
			}
		}
		return t
	}
	step := s.step(s.high - s.low)
	for k := math.Ceil(s.low/step - 1e-9); k*step <= s.high+step/1e6; k++ {
		t = append(t, k*step)
	}
	return t
}

func (s scale) format(v float64) string {
	switch {
	case math.Abs(v) < 1e-9:
		return "0"
	case s.Time:
		return duration(v)
	case s.Bytes && v >= 1<<20 && math.Mod(v, 1<<20) == 0:
		return plain(v/(1<<20)) + "M"
	case s.Bytes && v >= 1024 && math.Mod(v, 1024) == 0:
		return plain(v/1024) + "K"
	case math.Abs(v) >= 1:
		return plain(math.Round(v*100) / 100)
	}
	return plain(math.Round(v*1e6) / 1e6)
}

// duration writes nanoseconds in the largest unit of which there is one.
func duration(ns float64) string {
	for _, u := range []struct {
		name string
		ns   float64
	}{{"s", 1e9}, {"ms", 1e6}, {"us", 1e3}} {
		if ns >= u.ns*0.9999 {
			return plain(math.Round(ns/u.ns*1000)/1000) + " " + u.name
		}
	}
	return plain(math.Round(ns*1000)/1000) + " ns"
}

// plain writes a number without an exponent, thousands set apart.
func plain(v float64) string {
	text := strconv.FormatFloat(v, 'f', -1, 64)
	whole, part, found := strings.Cut(text, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if found {
		return whole + "." + part
	}
	return whole
}

// niceStep returns 1, 2 or 5 times a power of ten, about an eighth of the span.
func niceStep(span float64) float64 {
	raw := span / 8
	power := math.Pow(10, math.Floor(math.Log10(raw)))
	for _, m := range []float64{1, 2, 5} {
		if raw <= m*power*1.0001 {
			return m * power
		}
	}
	return 10 * power
}

// frame draws both axes with ticks, grid and labels.
func (c *canvas) frame(x, y scale) {
	for _, v := range y.ticks() {
		c.line(x.from, y.at(v), x.to, y.at(v), `stroke="#ddd" stroke-width="0.7"`)
		c.text(x.from-6, y.at(v)+4, "end", "", y.format(v))
	}
	for _, v := range x.ticks() {
		c.line(x.at(v), y.from, x.at(v), y.from+5, `stroke="black"`)
		c.text(x.at(v), y.from+18, "middle", "", x.format(v))
	}
	c.line(x.from, y.from, x.to, y.from, `stroke="black"`)
	c.line(x.from, y.from, x.from, y.to, `stroke="black"`)
	c.text((x.from+x.to)/2, y.from+38, "middle", "", x.Label)
	mid := (y.from + y.to) / 2
	c.text(18, mid, "middle", `transform="rotate(-90 18 `+num(mid)+`)"`, y.Label)
}
