package profile

import (
	"math"
	"strconv"
	"strings"
)

// kind is a physical quantity: its units and the range that makes sense. Values
// are in the first unit.
type kind struct {
	units   map[string]float64
	low     float64
	high    float64
	whole   bool // of its first unit
	allowed string
}

var (
	bandwidth = kind{
		units: map[string]float64{"MB/s": 1, "GB/s": 1e3, "Mb/s": 1.0 / 8, "Gb/s": 1e3 / 8},
		low:   0.1, high: 1e6,
		allowed: `0.1 MB/s to 1000 GB/s, written as "132 MB/s", "7 GB/s", "100 Gb/s" or "800 Mb/s"`,
	}
	span = kind{
		units: map[string]float64{"us": 1, "ns": 1e-3, "ms": 1e3},
		low:   0, high: 1e4,
		allowed: `0 to 10 ms, written as "1.5 us", "200 ns" or "1 ms"`,
	}
	clock = kind{
		units: map[string]float64{"MHz": 1, "GHz": 1e3},
		low:   0.1, high: 1e5,
		allowed: `0.1 MHz to 100 GHz, written as "100 MHz" or "1 GHz"`,
	}
	size = kind{
		units: map[string]float64{"B": 1, "KiB": 1024, "MiB": 1 << 20},
		low:   0, high: 4096, whole: true,
		allowed: `0 to 4096 B, whole, written as "128 B" or "1 KiB"`,
	}
)

// parse reads a decimal number and a unit. ok is false if either is missing, unknown
// or out of range.
func (k kind) parse(text string) (value float64, ok bool) {
	number, unit, found := strings.Cut(strings.TrimSpace(text), " ")
	if !found {
		return 0, false
	}
	scale, known := k.units[strings.TrimSpace(unit)]
	if !known {
		return 0, false
	}
	// ParseFloat would take Go's notation, too: hexadecimal, underscores.
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(v) || strings.ContainsAny(number, "xX_") {
		return 0, false
	}
	v *= scale
	return v, v >= k.low && v <= k.high && !(k.whole && v != math.Trunc(v))
}
