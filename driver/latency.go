package driver

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// latencySampler times some sends of a queue from post to completion, one at a time. The lock of
// the queue guards it, but for running and the times, which are read at any time.
type latencySampler struct {
	mask    uint32 // a descriptor is timed if the number behind its own has none of these bits
	running atomic.Bool
	until   uint32 // the number behind that of the descriptor that is timed
	since   time.Time
	times   latencies
}

func newLatencySampler(log2 int) *latencySampler {
	return &latencySampler{mask: 1<<log2 - 1, times: latencies{h: hdrhistogram.New(1, int64(longestTimed), 2)}}
}

// posted is told of each post, with the number of the next descriptor.
func (s *latencySampler) posted(next uint32) {
	if next&s.mask == 0 && !s.running.Load() {
		s.until, s.since = next, time.Now()
		s.running.Store(true)
	}
}

// taken is told up to where descriptors have been taken back.
func (s *latencySampler) taken(to uint32) {
	if s.running.Load() && int32(to-s.until) >= 0 {
		s.running.Store(false)
		s.times.add(time.Since(s.since))
	}
}

// longestTimed bounds the times of a histogram; longer ones count as that.
const longestTimed = time.Minute

// latencies are the times of the sends that were timed.
type latencies struct {
	mu       sync.Mutex // guards what follows
	h        *hdrhistogram.Histogram
	sum, max int64
}

func (l *latencies) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.h.RecordValue(int64(min(max(d, 0), longestTimed))) // the histogram has room for each such value
	l.sum += int64(d)
	l.max = max(l.max, int64(d))
}

// report has the times in a few figures, and how many there are up to each bound; nil if there are none.
func (l *latencies) report() *telemetry.Histogram {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.h.TotalCount() == 0 {
		return nil
	}
	quantile := func(percent float64) int64 { return min(l.h.ValueAtQuantile(percent), l.max) }
	r := &telemetry.Histogram{Latency: telemetry.Latency{Samples: uint64(l.h.TotalCount()), SumNS: l.sum, P50: quantile(50), P99: quantile(99), Max: l.max}}
	for _, b := range l.h.Distribution() {
		if b.Count > 0 {
			r.Buckets = append(r.Buckets, [2]uint64{uint64(b.To), uint64(b.Count)})
		}
	}
	return r
}
