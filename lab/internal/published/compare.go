package published

import (
	"fmt"
	"math"
)

// Line is a compared row.
type Line struct {
	Row
	Computed float64
	Highest  float64 // the upper end of a computed range; else as Computed
	Error    float64 // relative to the published figure; 0.01 is 1 %
	Counts   bool    // in the mean: a computed time or bandwidth with an exact figure
}

// Result writes what was computed with two digits, both ends of a range.
func (l *Line) Result() string {
	if l.Highest != l.Computed {
		return fmt.Sprintf("%.2f-%.2f", l.Computed, l.Highest)
	}
	return fmt.Sprintf("%.2f", l.Computed)
}

// Percent writes the error. One that is rounded to nothing has no sign.
func (l *Line) Percent() string {
	if math.Abs(l.Error) < 0.0005 {
		return "0.0 %"
	}
	return fmt.Sprintf("%+.1f %%", 100*l.Error)
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
		l := Line{Row: r, Computed: v.low, Highest: v.high}
		if kind := r.Kind(); kind != NotModelled {
			l.Error = r.Figure.off(v)
			l.Counts = kind == Predicted && r.Figure.Relation == Equal && units[r.Unit].dimension&(duration|rate) != 0
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
		e := math.Abs(l.Error)
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
