// Package ping measures round trips over a connection, as ping(8) does
// between two hosts: one side asks, the other returns what it gets.
package ping

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the longest round trip that is told apart from longer ones; a choice of ours.
const longest = time.Minute

// Stats of a run. Times are of whole round trips.
type Stats struct {
	Sent, Received uint64
	// Late answers came after their time and count as lost; Corrupt ones held
	// other bytes than were sent.
	Late, Corrupt uint64
	answers       uint32                  // that have come where none is lost, in order
	times         *hdrhistogram.Histogram // ns
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

// Lost returns the number of answers that did not come in time.
func (s *Stats) Lost() uint64 { return s.Sent - s.Received }

// Loss is the part of them, 0 to 1.
func (s *Stats) Loss() float64 {
	if s.Sent == 0 {
		return 0
	}
	return float64(s.Lost()) / float64(s.Sent)
}

// Min, Mean and Max round trips; zero if nothing came back.
func (s *Stats) Min() time.Duration  { return time.Duration(s.times.Min()) }
func (s *Stats) Mean() time.Duration { return time.Duration(s.times.Mean()) }
func (s *Stats) Max() time.Duration  { return time.Duration(s.times.Max()) }

// Percentile is the round trip that p percent were not longer than.
func (s *Stats) Percentile(p float64) time.Duration {
	return time.Duration(s.times.ValueAtPercentile(p))
}
