package bench

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// longest is the greatest latency of a histogram, which keeps this number of significant figures.
const (
	longest = 10 * time.Second
	figures = 3
)

// Histogram of times in nanoseconds. It crosses from workers in the compressed form of
// HdrHistogram.
type Histogram struct{ *hdrhistogram.Histogram }

func newHistogram() *Histogram { return &Histogram{hdrhistogram.New(1, int64(longest), figures)} }

// record adds a time, within the range, so that there can be no error.
func (h *Histogram) record(ns int64) { _ = h.RecordValue(min(max(ns, 1), int64(longest))) }

// MarshalJSON encodes a Histogram.
func (h Histogram) MarshalJSON() ([]byte, error) {
	b, err := h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, err
	}
	return json.Marshal(b)
}

// UnmarshalJSON is the opposite of MarshalJSON.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var b []byte
	err := json.Unmarshal(text, &b)
	if err == nil {
		h.Histogram, err = hdrhistogram.Decode(b)
	}
	if err != nil {
		return fmt.Errorf("latencies: %w", err)
	}
	return nil
}

// Side holds what a worker found.
type Side struct {
	// Messages measured, one way each, and their payload bytes.
	Messages uint64
	Bytes    uint64
	Elapsed  time.Duration
	// CPU time of the process while it measured.
	CPU time.Duration
	// Switches counts the times that the process was taken off its core while it could go on
	// (getrusage(2), ru_nivcsw).
	Switches uint64
	// Mallocs and Collections of the Go heap while it measured.
	Mallocs, Collections uint64
	// Quiet and QuietCPU are Elapsed and CPU of the time in which nothing came to an end that is idle.
	Quiet, QuietCPU time.Duration
	// Made is the time that one more VI of messages took to make, or one of what is beside these; Used is the memory.
	Made time.Duration
	Used Memory
	// Latencies of one message, or of a read there and back, in nanoseconds; nil for a
	// stream.
	Latencies *Histogram
}

// Percentile returns a latency in microseconds.
func (s *Side) Percentile(p float64) float64 { return float64(s.Latencies.ValueAtPercentile(p)) / 1e3 }

// perSecond divides by the time that was measured.
func (s *Side) perSecond(n float64) float64 { return n / max(s.Elapsed.Seconds(), 1e-9) }

// MBPerSecond is the payload rate, 10^6 bytes a second.
func (s *Side) MBPerSecond() float64 { return s.perSecond(float64(s.Bytes) / 1e6) }

// SwitchRate is the number of times a second that the process was taken off its core.
func (s *Side) SwitchRate() float64 { return s.perSecond(float64(s.Switches)) }

// MessageRate is messages a second.
func (s *Side) MessageRate() float64 { return s.perSecond(float64(s.Messages)) }
