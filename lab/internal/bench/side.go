package bench

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest latency that is told apart from longer ones, and the significant figures
// that are kept.
const (
	longest = 10 * time.Second
	figures = 3
)

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(longest), figures) }

// Side is what a worker found.
type Side struct {
	// Messages measured, one way each, and their payload bytes.
	Messages uint64
	Bytes    uint64
	Elapsed  time.Duration
	// CPU time of the process while it measured, and its cycles; zero where the
	// machine does not count them.
	CPU    time.Duration
	Cycles uint64
	// Switches are how often the process was taken off its core while it wanted to go
	// on, as other programs had their turn (getrusage(2), ru_nivcsw).
	Switches uint64
	// Mallocs and Collections of the Go heap while it measured.
	Mallocs, Collections uint64
	// Latencies of one message in nanoseconds; nil for a stream.
	Latencies *hdrhistogram.Histogram
}

// sideJSON is a Side on its way from a worker.
type sideJSON struct {
	Messages    uint64 `json:"messages"`
	Bytes       uint64 `json:"bytes"`
	Elapsed     int64  `json:"ns"`
	CPU         int64  `json:"cpu_ns"`
	Cycles      uint64 `json:"cycles"`
	Switches    uint64 `json:"switches"`
	Mallocs     uint64 `json:"mallocs"`
	Collections uint64 `json:"collections"`
	Latencies   []byte `json:"latencies,omitempty"`
}

// MarshalJSON encodes a Side; latencies in the compressed form of HdrHistogram.
func (s Side) MarshalJSON() ([]byte, error) {
	j := sideJSON{s.Messages, s.Bytes, int64(s.Elapsed), int64(s.CPU), s.Cycles, s.Switches, s.Mallocs, s.Collections, nil}
	if s.Latencies != nil {
		var err error
		if j.Latencies, err = s.Latencies.Encode(hdrhistogram.V2CompressedEncodingCookieBase); err != nil {
			return nil, err
		}
	}
	return json.Marshal(j)
}

// UnmarshalJSON is the opposite of MarshalJSON.
func (s *Side) UnmarshalJSON(b []byte) error {
	var j sideJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*s = Side{Messages: j.Messages, Bytes: j.Bytes, Elapsed: time.Duration(j.Elapsed), CPU: time.Duration(j.CPU),
		Cycles: j.Cycles, Switches: j.Switches, Mallocs: j.Mallocs, Collections: j.Collections}
	if len(j.Latencies) > 0 {
		h, err := hdrhistogram.Decode(j.Latencies)
		if err != nil {
			return fmt.Errorf("latencies: %w", err)
		}
		s.Latencies = h
	}
	return nil
}

// Percentile returns a latency in microseconds.
func (s *Side) Percentile(p float64) float64 { return float64(s.Latencies.ValueAtPercentile(p)) / 1e3 }

// MBPerSecond is the payload rate, 10^6 bytes a second.
func (s *Side) MBPerSecond() float64 { return float64(s.Bytes) / 1e6 / s.Elapsed.Seconds() }

// SwitchRate is how often a second the process was taken off its core.
func (s *Side) SwitchRate() float64 {
	return float64(s.Switches) / max(s.Elapsed.Seconds(), 1e-9)
}

// MessageRate is messages a second.
func (s *Side) MessageRate() float64 { return float64(s.Messages) / s.Elapsed.Seconds() }
