package pager

import (
	"time"

	"golang.org/x/sys/unix"
)

// Stats is what a pager has counted. Times are in nanoseconds.
type Stats struct {
	// Missed faults had to wait for the source; Returned ones found their page in the
	// pool; Written ones were first writes to pages that were there.
	Missed, Returned, Written uint64
	// Ahead is how many pages were read ahead, Unused how many of these left before
	// anybody was seen to use them.
	Ahead, Unused uint64
	// Evicted pages have left the mapped memory, Back were written back.
	Evicted, Back uint64
	// Mapped and Pooled pages are local now, and Limit is how many may be.
	Mapped, Pooled, Limit uint64
	// PageSize in bytes.
	PageSize uint64
	// Parts of Missed faults, as sums: from the report that was read to the request to
	// the source, its answer, and the part that was missed in its place.
	HandlingTime, FetchTime, CopyTime uint64
	// ReadStamps and CopiedStamps are sums, modulo 2^64, of the times by
	// CLOCK_MONOTONIC at which reports were read and parts were in place. Who has taken the
	// time before and after the accesses knows by them what report and wake took.
	ReadStamps, CopiedStamps uint64
}

// clock gives CLOCK_MONOTONIC without a system call for each reading.
type clock struct {
	start time.Time
	first int64
}

func newClock() clock {
	var t unix.Timespec
	// It does not fail with a clock that the kernel has.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return clock{time.Now(), t.Nano()}
}

func (c *clock) now() int64 { return c.first + int64(time.Since(c.start)) }
