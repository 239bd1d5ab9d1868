// Package ping measures round trips over a connection, as ping(8) does
// between two hosts: one side asks, the other returns what it gets.
package ping

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest round trip that is told apart from longer ones; a choice of ours.
const longest = time.Minute

// Stats of a run.
type Stats struct {
	Sent     uint64 `json:"sent"`
	Received uint64 `json:"received"`
	// Lost are those whose answers did not come in time.
	Lost uint64  `json:"lost"`
	Loss float64 `json:"loss" help:"0 to 1"`
	// Late answers came after their time and count as lost; Corrupt ones held
	// other bytes than were sent.
	Late    uint64   `json:"late"`
	Corrupt uint64   `json:"corrupt"`
	Min     *float64 `json:"min_us" help:"of round trips, as those below; null if nothing came back"`
	Avg     *float64 `json:"avg_us"`
	P50     *float64 `json:"p50_us"`
	P99     *float64 `json:"p99_us"`
	Max     *float64 `json:"max_us"`

	answers uint32                  // that have come where none is lost, in order
	times   *hdrhistogram.Histogram // ns
}

func newStats() *Stats {
	// Three digits: within 0.1 % of the true value.
	return &Stats{times: hdrhistogram.New(1, int64(longest), 3)}
}

func (s *Stats) record(d time.Duration) {
	s.Received++
	// Within the range, so that there can be no error.
	_ = s.times.RecordValue(int64(min(max(d, 1), longest)))
}

// sumUp has the rest follow from what was counted.
func (s *Stats) sumUp() {
	s.Lost = s.Sent - s.Received
	if s.Sent > 0 {
		s.Loss = float64(s.Lost) / float64(s.Sent)
	}
	if s.Received > 0 {
		us := func(ns int64) *float64 { return new(float64(ns) / 1e3) }
		s.Min, s.Avg, s.Max = us(s.times.Min()), us(int64(s.times.Mean())), us(s.times.Max())
		s.P50, s.P99 = us(s.times.ValueAtPercentile(50)), us(s.times.ValueAtPercentile(99))
	}
}
