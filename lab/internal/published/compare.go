package published

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Line is a compared row.
type Line struct {
	Row
	Computed *float64 `json:"computed,omitempty" help:"unless it is not modelled"`
	Highest  *float64 `json:"computed_highest,omitempty" help:"of a range"`
	Error    *float64 `json:"error_percent,omitempty" help:"unless it is not modelled"`
	Kind     Kind     `json:"kind"`
	What     string   `json:"what"`
	Counts   bool     `json:"-"` // in the mean: a computed time or bandwidth with an exact figure
}

// Summary of the relative errors, absolute values.
type Summary struct {
	Rows    int     `json:"rows"`
	Mean    float64 `json:"mean"`
	Maximum float64 `json:"maximum"`
	Worst   string  `json:"worst_id"`
}

// Compare computes every row that says what to compute.
func Compare(m *Model, rows []Row) ([]Line, error) {
	lines := make([]Line, 0, len(rows))
	for _, r := range rows {
		v, err := m.span(r)
		if err != nil {
			return nil, err
		}
		l := Line{Row: r, Kind: r.Kind(), What: r.What()}
		if l.Kind != NotModelled {
			l.Computed, l.Error = &v.low, new(100*r.Figure.off(v))
			l.Counts = l.Kind == Predicted && r.Figure.Relation == Equal && units[r.Unit].dimension&(duration|rate) != 0
		}
		if v.high != v.low {
			l.Highest = &v.high
		}
		lines = append(lines, l)
	}
	return lines, nil
}

// Summarise gives mean and maximum over the lines that count and for which use
// says yes.
func Summarise(lines []Line, use func(Line) bool) Summary {
	var s Summary
	for _, l := range lines {
		if !l.Counts || !use(l) {
			continue
		}
		e := math.Abs(*l.Error) / 100
		s.Rows++
		s.Mean += e
		if e >= s.Maximum {
			s.Maximum, s.Worst = e, l.ID
		}
	}
	if s.Rows > 0 {
		s.Mean /= float64(s.Rows)
	}
	return s
}

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
