package driver

import (
	"fmt"
	"math/bits"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// maxSampleLatency bounds Options.SampleLatency: one send in a million.
const maxSampleLatency = 20

// sampleVariable is that of the environment which stands for Options.SampleLatency.
const sampleVariable = "TRAPEZE_LATENCY"

// sampleLatency checks the option, or takes the variable of the environment in its place.
func (o *Options) sampleLatency() error {
	if s := os.Getenv(sampleVariable); o.SampleLatency == 0 && s != "" {
		k, err := strconv.Atoi(s)
		if err != nil || k < 1 || k > maxSampleLatency {
			return fmt.Errorf("%w: %s is %q, want 1 to %d", descriptors.ErrInvalidParameter, sampleVariable, s, maxSampleLatency)
		}
		o.SampleLatency = k
	}
	if o.SampleLatency < 0 || o.SampleLatency > maxSampleLatency {
		return fmt.Errorf("%w: SampleLatency %d, want 0 to %d", descriptors.ErrInvalidParameter, o.SampleLatency, maxSampleLatency)
	}
	return nil
}

// latencySampler times some sends of a queue from post to completion, one at a time. The lock of
// the queue guards it, but for running and the histogram, which are read at any time.
type latencySampler struct {
	mask    uint32 // a descriptor is timed if the number behind its own has none of these bits
	running atomic.Bool
	until   uint32 // the number behind that of the descriptor that is timed
	since   time.Time
	times   latencyHistogram
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

// timeSendFrom looks whether the send that is timed, if any, has completed: programs take sends back long
// after, such as when they need a buffer. It is called with the lock of held, either of the VI's
// queues, and never waits for another.
func (q *workQueue) timeSendFrom(held *workQueue) {
	if q != held {
		if !q.sampler.running.Load() || !q.mu.TryLock() {
			return
		}
		defer q.mu.Unlock() // also if the memory of the descriptor is gone, as in take
	}
	q.timeSend()
}

// timeSend is timeSendFrom with mu held.
func (q *workQueue) timeSend() {
	s := q.sampler
	if !s.running.Load() || q.closed {
		return
	}
	if d := q.posted[(s.until-1)&q.mask].d; d != nil && d.Status().Done() {
		s.taken(s.until)
	}
}

// latencyHistogram counts times in buckets that are linear within each power of two, as those of
// HdrHistogram: a bucket is at most 1/32 of its value wide. One goroutine at a time adds.
type latencyHistogram struct {
	counts   [latencyBuckets]atomic.Uint64
	sum, max atomic.Int64
}

const (
	// latencyBits is the binary logarithm of the buckets within a power of two.
	latencyBits = 5
	// latencyPowers bounds times to 2^36 ns, which are 69 s; longer ones count as that.
	latencyPowers  = 36
	latencyBuckets = (latencyPowers - latencyBits + 1) << latencyBits
)

func (h *latencyHistogram) add(d time.Duration) {
	h.counts[latencyBucket(d)].Add(1)
	h.sum.Add(int64(d))
	h.max.Store(max(h.max.Load(), int64(d)))
}

func latencyBucket(d time.Duration) int {
	ns := uint64(min(max(d, 0), 1<<latencyPowers-1))
	power := max(bits.Len64(ns)-latencyBits-1, 0)
	return power<<latencyBits + int(ns>>power)
}

// latencyBound is the longest time of a bucket.
func latencyBound(bucket int) time.Duration {
	if bucket < 2<<latencyBits {
		return time.Duration(bucket)
	}
	power := bucket>>latencyBits - 1
	return time.Duration((bucket-power<<latencyBits+1)<<power - 1)
}

// buckets have the longest time in nanoseconds and a count, those with none left out.
func (h *latencyHistogram) buckets() [][2]uint64 {
	list := [][2]uint64{}
	for i := range h.counts {
		if n := h.counts[i].Load(); n > 0 {
			list = append(list, [2]uint64{uint64(latencyBound(i)), n})
		}
	}
	return list
}

// report is the histogram in a few figures; nil if it is empty.
func (h *latencyHistogram) report() *telemetry.Latency {
	var counts [latencyBuckets]uint64
	var all uint64
	for i := range counts {
		counts[i] = h.counts[i].Load()
		all += counts[i]
	}
	if all == 0 {
		return nil
	}
	longest := h.max.Load()
	quantile := func(percent uint64) int64 {
		left := (all*percent + 99) / 100
		for i, n := range counts {
			if n >= left {
				return min(int64(latencyBound(i)), longest)
			}
			left -= n
		}
		return longest
	}
	return &telemetry.Latency{Samples: all, SumNS: h.sum.Load(), P50: quantile(50), P99: quantile(99), Max: longest}
}
