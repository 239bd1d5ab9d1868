// Package units prints sizes and times as the commands show them to people.
package units

import (
	"fmt"
	"time"
)

// Size returns a number of bytes in the largest unit, up to GiB, of which it has a whole number.
func Size[T int | uint32 | uint64](n T) string {
	shift, unit := 0, "B"
	for i, name := range []string{"KiB", "MiB", "GiB"} {
		if next := 10 * (i + 1); n != 0 && uint64(n)&(1<<next-1) == 0 {
			shift, unit = next, name
		}
	}
	return fmt.Sprintf("%d %s", n>>shift, unit)
}

// Microseconds returns a time in microseconds, for JSON and tables.
func Microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
