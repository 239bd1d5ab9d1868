// Package ticks reads the processor's time stamp counter, which costs less than
// asking the system for the time.
package ticks

import "time"

// Now returns the counter (RDTSC on amd64, CNTVCT_EL0 on arm64). It does not wait
// for what the processor has under way, so a border between two steps is sharp to
// some nanoseconds only; what one side gains the other loses.
func Now() uint64

// Rate measures the counter against the system's clock for d and returns ticks in
// a nanosecond.
func Rate(d time.Duration) float64 {
	start, t := time.Now(), Now()
	for time.Since(start) < d {
	}
	return float64(Now()-t) / float64(time.Since(start))
}
