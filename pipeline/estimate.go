package pipeline

import "math"

// Memory of the estimates: an observation's weight falls by this factor with each
// later one, so about the last 20 count.
const forget = 0.95

// average is a running mean that forgets.
type average struct {
	value, weight float64
}

func (a *average) add(x float64) {
	a.weight = a.weight*forget + 1
	a.value += (x - a.value) / a.weight
}

// line is a running least-squares fit y = intercept + slope*x that forgets.
type line struct {
	weight, x, y, xx, xy float64 // means, weighted
	slope                float64 // last one that the spread of x allowed
	known                bool
}

func (l *line) add(x, y float64) {
	l.weight = l.weight*forget + 1
	k := 1 / l.weight
	dx, dy := x-l.x, y-l.y
	l.x += k * dx
	l.y += k * dy
	l.xx += k * (dx*(x-l.x) - l.xx)
	l.xy += k * (dx*(y-l.y) - l.xy)
	// Sizes that differ by less than 2 % say nothing about the slope.
	if l.xx > 4e-4*l.x*l.x {
		l.slope, l.known = math.Max(l.xy/l.xx, 0), true
	}
}

// fit returns the line, with neither part negative; ok is false before sizes have
// differed.
func (l *line) fit() (intercept, slope float64, ok bool) {
	slope = math.Min(l.slope, l.y/math.Max(l.x, 1))
	return math.Max(l.y-slope*l.x, 0), slope, l.known
}
