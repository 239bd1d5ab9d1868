package pager

import (
	"time"

	"golang.org/x/sys/unix"
)

// Stats has the counts of a pager.
type Stats struct {
	Missed   uint64 `json:"missed" help:"Faults that had to wait for the source." unit:"faults"`
	Returned uint64 `json:"returned" help:"Faults that found their page in the pool." unit:"faults"`
	Written  uint64 `json:"written" help:"First writes to pages that were there." unit:"faults"`
	Ahead    uint64 `json:"ahead" help:"Pages that were read ahead." unit:"pages"`
	Unused   uint64 `json:"unused" help:"Pages read ahead that left before they were used." unit:"pages"`
	Evicted  uint64 `json:"evicted" help:"Pages that have left the mapped memory." unit:"pages"`
	Back     uint64 `json:"back" help:"Pages that were written back." unit:"pages"`
	Mapped   uint64 `json:"mapped" help:"Pages in the mapped memory." unit:"pages" kind:"gauge"`
	Pooled   uint64 `json:"pooled" help:"Local pages in buffers." unit:"pages" kind:"gauge"`
	Limit    uint64 `json:"limit" help:"Pages that may be local." unit:"pages" kind:"gauge"`
	PageSize uint64 `json:"page_bytes" help:"Size of a page." unit:"bytes" kind:"gauge"`

	// Parts of the faults in Missed, as sums.
	HandlingTime uint64 `json:"handling_ns" help:"Time from reading a fault's report to the request to the source." unit:"nanoseconds"`
	FetchTime    uint64 `json:"fetch_ns" help:"Time until the source answered." unit:"nanoseconds"`
	CopyTime     uint64 `json:"copy_ns" help:"Time until the missed part was in its place." unit:"nanoseconds"`

	// Sums, modulo 2^64, of times by CLOCK_MONOTONIC. A program that takes the time before and
	// after its accesses knows by them how long report and wake-up took.
	ReadStamps   uint64 `json:"read_stamps_ns" help:"Sum of the times at which reports were read." unit:"nanoseconds"`
	CopiedStamps uint64 `json:"copied_stamps_ns" help:"Sum of the times at which parts were in place." unit:"nanoseconds"`
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
