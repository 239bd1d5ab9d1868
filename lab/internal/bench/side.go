package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// longest is the greatest latency of a histogram, which keeps this number of significant figures.
const (
	longest = 10 * time.Second
	figures = 3
)

// Histogram of times in nanoseconds. It crosses from workers as JSON.
type Histogram struct{ *hdrhistogram.Histogram }

func newHistogram() *Histogram { return &Histogram{hdrhistogram.New(1, int64(longest), figures)} }

// record adds a time, within the range, so that there can be no error.
func (h *Histogram) record(ns int64) { _ = h.RecordValue(min(max(ns, 1), int64(longest))) }

// MarshalJSON encodes the counts.
func (h Histogram) MarshalJSON() ([]byte, error) { return json.Marshal(h.Export()) }

// UnmarshalJSON is the opposite of MarshalJSON.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var counts hdrhistogram.Snapshot
	err := json.Unmarshal(text, &counts)
	h.Histogram = hdrhistogram.Import(&counts)
	return err
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

// account counts what this process uses from now on, until the function that it returns puts that into s.
func (s *Side) account() (end func()) {
	before, started := used(), time.Now()
	return func() {
		s.Elapsed = time.Since(started)
		now := used()
		s.CPU, s.Switches = now.CPU-before.CPU, now.Switches-before.Switches
		s.Mallocs, s.Collections = now.Mallocs-before.Mallocs, now.Collections-before.Collections
	}
}

// used returns what this process has used so far.
func used() Side {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // what the kernel does not tell is zero
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return Side{CPU: time.Duration(unix.TimevalToNsec(u.Utime) + unix.TimevalToNsec(u.Stime)), Switches: uint64(u.Nivcsw),
		Mallocs: m.Mallocs, Collections: uint64(m.NumGC)}
}

// Memory is what one object takes, or the whole process.
type Memory struct {
	Heap   Figure `json:"heap_bytes" help:"Go heap of the driver and of the emulated NIC"`
	Shared Figure `json:"shared_bytes" help:"outside the Go heap: DMA memory and pages of doorbells"`
	Total  Figure `json:"total_bytes" help:"the sum of these"`
	Files  Figure `json:"files" help:"file descriptors"`
}

// watched measures the time and the memory of each object that f creates.
func (p *part) watched(side *Side, f func() error) error {
	count := 2*p.Unused + p.CQs + 2*p.Regions // at two NICs, or at one
	if count == 0 {
		return f()
	}
	before, err := look()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := f(); err != nil {
		return err
	}
	side.Made = time.Since(start) / time.Duration(count)
	after, err := look()
	each := func(before, after Figure) Figure { return (after - before) / Figure(count) }
	side.Used = Memory{each(before.Heap, after.Heap), each(before.Shared, after.Shared), each(before.Total, after.Total),
		each(before.Files, after.Files)}
	return err
}

// look returns what this process uses now.
func look() (m Memory, err error) {
	runtime.GC()
	runtime.GC() // of what finalizers have let go
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	files, err := os.ReadDir("/proc/self/fd")
	shared, err2 := resident()
	m = Memory{Figure(heap.HeapAlloc), shared, Figure(heap.HeapAlloc) + shared, Figure(len(files))}
	return m, errors.Join(err, err2)
}

// resident reads RssShmem (proc(5), status), which is in KiB, from Linux 4.5 on.
func resident() (bytes Figure, err error) {
	text, err := os.ReadFile("/proc/self/status")
	_, shared, found := strings.Cut(string(text), "RssShmem:")
	if err == nil && !found {
		return 0, errors.New("/proc/self/status does not tell RssShmem")
	}
	_, err2 := fmt.Sscan(shared, &bytes)
	return 1024 * bytes, errors.Join(err, err2)
}

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
