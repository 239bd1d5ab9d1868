package netmem

import (
	"math/bits"
	"time"
)

const (
	// latencyBits is the number of bits that are kept below the highest one of a latency: a bucket
	// is at most 1/64 of its values wide.
	latencyBits = 6
	// longestLatency is the limit of the last bucket, which longer times count in.
	longestLatency = time.Minute
	latencyBuckets = (36-latencyBits-1)<<latencyBits + 2<<latencyBits // a minute of nanoseconds has 36 bits
)

// latencies counts times in buckets, of which each power of two has the same number. The zero
// value is empty. Its owner locks it.
type latencies struct {
	total  uint64
	counts [latencyBuckets]uint64
}

// record counts a time; those below a nanosecond count as one.
func (l *latencies) record(d time.Duration) {
	l.counts[latencyBucket(min(longestLatency, max(1, d)))]++
	l.total++
}

// latencyBucket returns the bucket of a time: those of its power of two begin at shift<<latencyBits.
func latencyBucket(d time.Duration) int {
	shift := max(0, bits.Len64(uint64(d))-latencyBits-1)
	return shift<<latencyBits + int(d>>shift)
}

// bucketEnd returns the longest time in a bucket.
func bucketEnd(bucket int) time.Duration {
	shift := max(0, bucket>>latencyBits-1)
	return time.Duration(bucket-shift<<latencyBits+1)<<shift - 1
}

// percentile returns a time that p % of those recorded do not exceed; 0 if there are none.
func (l *latencies) percentile(p float64) time.Duration {
	if l.total == 0 {
		return 0
	}
	wanted, seen := max(1, uint64(p/100*float64(l.total)+0.5)), uint64(0)
	for b, n := range l.counts {
		if seen += n; seen >= wanted {
			return bucketEnd(b)
		}
	}
	return longestLatency
}
