package netmem_test

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/netmem"
)

// now is CLOCK_MONOTONIC, which all processes share.
func now() uint64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano())
}

// BenchmarkMapFault is one thread that touches one missing page after the other, far apart, and
// reports what the parts of a fault take: until the pager has read the report, until it asks
// the source, the source's answer, the page in its place, and until the thread goes on. The
// source is a file in memory.
func BenchmarkMapFault(b *testing.B) {
	for _, page := range []int{4 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dK", page>>10), func(b *testing.B) {
			const pages = 512
			s := newSource(b, page, make([]byte, page*pages))
			m := open(b, s, netmem.MapOptions{Local: int64(page * pages / 4), Ahead: -1})
			memory := m.Bytes()
			before, err := m.Stats(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			var touched, returned uint64
			var sum byte
			at := 0
			b.ResetTimer()
			for range b.N {
				at = (at + 199) % pages // 199 and 512 have no common divisor: each page in turn
				start := now()
				sum += memory[at*page]
				end := now()
				touched, returned = touched+start, returned+end
			}
			b.StopTimer()
			after, err := m.Stats(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			if n := after.Missed - before.Missed; n != uint64(b.N) {
				b.Fatalf("%d faults of %d accesses, sum %d", n, b.N, sum)
			}
			n := float64(b.N)
			b.ReportMetric(float64(after.ReadStamps-before.ReadStamps-touched)/n, "report-ns")
			b.ReportMetric(float64(after.HandlingTime-before.HandlingTime)/n, "pager-ns")
			b.ReportMetric(float64(after.FetchTime-before.FetchTime)/n, "fetch-ns")
			b.ReportMetric(float64(after.CopyTime-before.CopyTime)/n, "copy-ns")
			b.ReportMetric(float64(returned-(after.CopiedStamps-before.CopiedStamps))/n, "wake-ns")
		})
	}
}

// BenchmarkMapSequential is one thread that reads all of a memory that is larger than its local
// part, in sequence, with and without reading ahead. With it, of-floor is the time that the
// kernel takes at least (kernelFloor, after each round) as a part of the round's: 1 were a pager
// and a source that cost nothing.
func BenchmarkMapSequential(b *testing.B) {
	for _, page := range []int{4 << 10, 16 << 10, 64 << 10} {
		for name, ahead := range map[string]int64{"ahead": 0, "alone": -1} {
			b.Run(fmt.Sprintf("%dK/%s", page>>10, name), func(b *testing.B) {
				const size, local = 128 << 20, 32 << 20
				s := newSource(b, page, make([]byte, size))
				m := open(b, s, netmem.MapOptions{Local: local, Ahead: ahead})
				var floor *kernelFloor
				var least time.Duration
				if ahead == 0 {
					floor = newKernelFloor(b, size, local)
				}
				b.SetBytes(size)
				var sum uint64
				for b.Loop() {
					sum += sumOf(m.Bytes())
					if floor != nil {
						b.StopTimer()
						least += floor.pass(b)
						b.StartTimer()
					}
				}
				if sum != 0 {
					b.Error("wrong bytes")
				}
				if floor != nil {
					b.ReportMetric(least.Seconds()/b.Elapsed().Seconds(), "of-floor")
				}
			})
		}
	}
}

// sumOf reads a word of each cache line.
func sumOf(memory []byte) (sum uint64) {
	for at := 0; at < len(memory); at += 64 {
		sum += binary.LittleEndian.Uint64(memory[at:])
	}
	return sum
}
