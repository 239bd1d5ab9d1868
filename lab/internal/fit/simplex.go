package fit

import (
	"cmp"
	"slices"
)

type vertex struct {
	x    []float64
	cost float64
}

// simplex minimises f from start by the Nelder-Mead method, in a given number of
// steps. The first simplex is start with each coordinate enlarged by the factor
// 1+spread in turn.
func simplex(f func([]float64) float64, start []float64, spread float64, steps int) ([]float64, float64) {
	n := len(start)
	s := make([]vertex, n+1)
	for i := range s {
		x := slices.Clone(start)
		if i > 0 {
			x[i-1] *= 1 + spread
		}
		s[i] = vertex{x, f(x)}
	}
	byCost := func(a, b vertex) int { return cmp.Compare(a.cost, b.cost) }
	slices.SortStableFunc(s, byCost)
	for range steps {
		step(s, f)
		slices.SortStableFunc(s, byCost)
	}
	return s[0].x, s[0].cost
}

// minimise is simplex of a function that can fail. After the first failure, which it returns, f is
// not called again.
func minimise(f func([]float64) (float64, error), start []float64, spread float64, steps int) (x []float64, cost float64, failure error) {
	x, cost = simplex(func(x []float64) (cost float64) {
		if failure == nil {
			cost, failure = f(x)
		}
		return cost
	}, start, spread, steps)
	return x, cost, failure
}

// deviations is the sum of squared deviations of values from what is expected of them.
func (k *known) deviations(x []float64) (sum float64) {
	for i, e := range k.expected {
		if e.sigma > 0 {
			d := (x[i] - e.value) / e.sigma
			sum += d * d
		}
	}
	return sum
}

// step replaces the worst vertex of a sorted simplex, or shrinks towards the best.
func step(s []vertex, f func([]float64) float64) {
	n := len(s) - 1
	centre := make([]float64, n)
	for _, v := range s[:n] {
		for j := range centre {
			centre[j] += v.x[j] / float64(n)
		}
	}
	along := func(t float64) vertex {
		x := make([]float64, n)
		for j := range x {
			x[j] = centre[j] + t*(s[n].x[j]-centre[j])
		}
		return vertex{x, f(x)}
	}
	reflected := along(-1)
	switch {
	case reflected.cost < s[0].cost:
		if expanded := along(-2); expanded.cost < reflected.cost {
			reflected = expanded
		}
		s[n] = reflected
		return
	case reflected.cost < s[n-1].cost:
		s[n] = reflected
		return
	}
	contraction := 0.5
	if reflected.cost < s[n].cost {
		contraction = -0.5
	}
	if c := along(contraction); c.cost < min(reflected.cost, s[n].cost) {
		s[n] = c
		return
	}
	for i := 1; i <= n; i++ {
		for j := range s[i].x {
			s[i].x[j] = s[0].x[j] + 0.5*(s[i].x[j]-s[0].x[j])
		}
		s[i].cost = f(s[i].x)
	}
}
