package bench

import (
	"fmt"
	"slices"
	"strconv"
)

// Figure is a measured value, which people see with three digits.
type Figure float64

func (f Figure) String() string {
	switch {
	case f >= 1e6:
		return fmt.Sprintf("%.2fM", float64(f)/1e6)
	case f >= 1e3:
		return fmt.Sprintf("%.0f", float64(f))
	}
	return strconv.FormatFloat(float64(f), 'g', 3, 64)
}

// Spread is the lowest and the highest of some values.
type Spread [2]Figure

func (s Spread) String() string { return s[0].String() + ".." + s[1].String() }

// Size is a number of bytes, which people see in KiB and MiB if it is a multiple of these.
type Size int

func (n Size) String() string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", int(n))
}

// Median returns the middle, the lowest and the highest of values.
func Median(values []float64) (Figure, Spread) {
	if len(values) == 0 {
		return 0, Spread{}
	}
	s := slices.Sorted(slices.Values(values))
	m := s[len(s)/2]
	if len(s)%2 == 0 {
		m = (m + s[len(s)/2-1]) / 2
	}
	return Figure(m), Spread{Figure(s[0]), Figure(s[len(s)-1])}
}
