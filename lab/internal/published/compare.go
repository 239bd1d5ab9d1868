package published

import (
	"math"
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
