package published

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Relation says how a value binds.
type Relation string

// Relations of a published value to what was measured.
const (
	Equal   Relation = "="
	AtMost  Relation = "<"
	AtLeast Relation = ">"
	Within  Relation = "range"
)

// Figure is a published value as numbers; High differs from Low for a range.
type Figure struct {
	Low, High float64
	Relation  Relation
}

// figureOf reads a value: "215", "<80", ">120" or "120-132". bound makes a bound of a
// number that has no sign.
func figureOf(text string, bound Relation) (Figure, error) {
	f := Figure{Relation: bound}
	if bound == "" {
		f.Relation = Equal
	}
	rest := text
	for _, sign := range []Relation{AtMost, AtLeast} {
		if after, ok := strings.CutPrefix(text, string(sign)); ok {
			f.Relation, rest = sign, after
		}
	}
	low, high, ranged := strings.Cut(rest, "-")
	f.Low = number(low)
	if f.High = f.Low; ranged {
		f.High, f.Relation = number(high), Within
	}
	if f.Low == 0 || f.High < f.Low {
		return Figure{}, fmt.Errorf("%w: %q", ErrFigure, text)
	}
	return f, nil
}

// number reads a positive decimal number, which K multiplies by 1024; it is 0 if text is no such number.
func number(text string) float64 {
	text, kilo := strings.CutSuffix(text, "K")
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || !(v > 0) || math.IsInf(v, 0) || strings.ContainsAny(text, "xXpP_") {
		return 0
	}
	if kilo {
		v *= 1024
	}
	return v
}

// Error returns how far a computed value is off, relative to the published one;
// 0 inside a bound or range.
func (f Figure) Error(computed float64) float64 {
	switch {
	case f.Relation == AtMost && computed <= f.High:
		return 0
	case f.Relation == AtLeast && computed >= f.Low:
		return 0
	case f.Relation == Within && computed >= f.Low && computed <= f.High:
		return 0
	case computed < f.Low:
		return (computed - f.Low) / f.Low
	}
	return (computed - f.High) / f.High
}

// off is Error of a figure that may have two ends. Of a range both ends are compared with
// the published ones, and what is further off counts.
func (f Figure) off(v span) float64 {
	if v.low == v.high || f.Relation != Within {
		return f.Error(v.low)
	}
	low, high := v.low/f.Low-1, v.high/f.High-1
	if math.Abs(high) > math.Abs(low) {
		return high
	}
	return low
}
