package fit

import (
	"math"
	"testing"
)

// TestSimplex minimises functions whose minimum is known.
func TestSimplex(t *testing.T) {
	for name, c := range map[string]struct {
		f     func(x []float64) float64
		start []float64
		want  []float64
	}{
		"valley": {func(x []float64) float64 { a, b := 1-x[0], x[1]-x[0]*x[0]; return a*a + 100*b*b }, []float64{-1.2, 1}, []float64{1, 1}},
		"bowl": {func(x []float64) float64 {
			return math.Pow(x[0]-3, 2) + math.Abs(x[1]+2) + math.Pow(x[2]-5, 4)
		}, []float64{1, 1, 1}, []float64{3, -2, 5}},
	} {
		x, cost := simplex(c.f, c.start, 0.1, 400)
		for i := range x {
			if math.Abs(x[i]-c.want[i]) > 0.05 {
				t.Errorf("%s: %v (%v), want %v", name, x, cost, c.want)
				break
			}
		}
	}
}
