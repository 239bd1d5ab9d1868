package profile

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// kind is a physical quantity: its units and the range that makes sense. Values
// are in the first unit.
type kind struct {
	units     map[string]float64 // none: a whole number without a unit
	low, high float64
	whole     func(v float64) int64 // the value as an integer
	exact     bool                  // it has no part of a unit
	allowed   string
}

var (
	bandwidth = kind{
		units: map[string]float64{"MB/s": 1, "GB/s": 1e3, "Mb/s": 1.0 / 8, "Gb/s": 1e3 / 8},
		low:   0.1, high: 1e6,
		whole:   func(v float64) int64 { return NewCost(0, v).PerByte },
		allowed: `0.1 MB/s to 1000 GB/s, written as "132 MB/s", "7 GB/s", "100 Gb/s" or "800 Mb/s"`,
	}
	span = kind{
		units: map[string]float64{"us": 1, "ns": 1e-3, "ms": 1e3},
		low:   0, high: 1e4,
		whole:   func(v float64) int64 { return int64(Micros(v)) },
		allowed: `0 to 10 ms, written as "1.5 us", "200 ns" or "1 ms"`,
	}
	clock = kind{
		units: map[string]float64{"MHz": 1, "GHz": 1e3},
		low:   0.1, high: 1e5,
		whole:   func(v float64) int64 { return int64(1e6 / v) },
		allowed: `0.1 MHz to 100 GHz, written as "100 MHz" or "1 GHz"`,
	}
)

// kindOf returns the kind that a tag names: "time"; "clock", whose integer is its period; "rate", whose integer is the
// time of a byte; "bytes LOW HIGH"; or "count LOW HIGH".
func kindOf(is string) (k kind, ok bool) {
	switch is {
	case "time":
		return span, true
	case "clock":
		return clock, true
	case "rate":
		return bandwidth, true
	}
	name := ""
	n, _ := fmt.Sscan(is, &name, &k.low, &k.high)
	k.exact, k.whole, k.allowed = true, func(v float64) int64 { return int64(v) }, fmt.Sprintf("%.0f to %.0f", k.low, k.high)
	if name == "bytes" {
		k.units = map[string]float64{"B": 1, "KiB": 1024, "MiB": 1 << 20}
		k.allowed += ` B, whole, written as "128 B", "1 KiB" or "4 MiB"`
	}
	return k, n == 3
}

// parse reads a whole number, or the text of a decimal number and its unit. ok is false if it is neither or out of
// range.
func (k kind) parse(v any) (value float64, ok bool) {
	if k.units == nil {
		n, ok := v.(int64)
		return float64(n), ok && float64(n) >= k.low && float64(n) <= k.high
	}
	text, _ := v.(string)
	number, unit, _ := strings.Cut(strings.TrimSpace(text), " ")
	scale := k.units[strings.TrimSpace(unit)]
	// ParseFloat would take Go's notation, too: hexadecimal, underscores.
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || math.IsNaN(f) || strings.ContainsAny(number, "xX_") {
		return 0, false
	}
	f *= scale
	return f, scale != 0 && f >= k.low && f <= k.high && !(k.exact && f != math.Trunc(f))
}
