package porttest

import (
	"fmt"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// Quick is a NIC for benchmarks: it serves its rings at once, and never reads the frames, of 60 bytes.
type Quick struct {
	Queue ethernet.Queue
	// Fill puts n frames into the receive ring, and Drain sends n. Refill makes room for Fill without a receiver.
	Fill, Drain, Refill func(n int)
}

// Benchmarks measures a driver with NICs that open returns, at bursts of several sizes. What the NIC does is in
// the result; "device" measures that alone, to be subtracted from "forward". ixy's forwarder takes about 120
// cycles a frame in C and 160 in Go at bursts of 32 (Emmerich et al., "The Case for Writing Network Drivers in
// High-Level Programming Languages", ANCS 2019).
func Benchmarks(b *testing.B, open func(b *testing.B, pool *ethernet.Pool) Quick) {
	for name, bench := range map[string]func(b *testing.B, in, out Quick, frames []ethernet.Frame) func(){
		"receive": func(b *testing.B, in, _ Quick, frames []ethernet.Frame) func() {
			return func() {
				in.receive(b, frames)
				in.Queue.Cache().Free(frames)
			}
		},
		"send": func(b *testing.B, _, out Quick, frames []ethernet.Frame) func() {
			return func() {
				out.Queue.Cache().Alloc(frames)
				for i := range frames {
					frames[i].Length = ethernet.MinFrame
				}
				out.send(b, frames)
			}
		},
		"forward": func(b *testing.B, in, out Quick, frames []ethernet.Frame) func() {
			return func() {
				in.receive(b, frames)
				out.send(b, frames)
			}
		},
		"device": func(_ *testing.B, in, _ Quick, frames []ethernet.Frame) func() {
			return func() {
				in.Fill(len(frames))
				in.Refill(len(frames))
				in.Drain(len(frames))
			}
		},
	} {
		for _, burst := range []int{1, 8, 32, 256} {
			b.Run(fmt.Sprintf("%s/burst%d", name, burst), func(b *testing.B) {
				pool := NewPool(b, ethernet.PoolOptions{})
				in, out := open(b, pool), open(b, pool)
				perFrame(b, burst, bench(b, in, out, make([]ethernet.Frame, burst)))
			})
		}
	}
}

func (q *Quick) receive(b *testing.B, frames []ethernet.Frame) {
	q.Fill(len(frames))
	must.Give(q.Queue.Receive(frames))(b, len(frames))
}

// send sends all frames. A driver may look for room only now and then.
func (q *Quick) send(b *testing.B, frames []ethernet.Frame) {
	for sent := 0; sent < len(frames); {
		sent += must.Get(q.Queue.Send(frames[sent:]))(b)
	}
	q.Drain(len(frames))
}

// perFrame runs f, which moves burst frames, and reports time and cycles for each.
func perFrame(b *testing.B, burst int, f func()) {
	b.Helper()
	b.ReportAllocs()
	clock := cycleTime()
	n := 0
	for b.Loop() {
		f()
		n += burst
	}
	each := float64(b.Elapsed().Nanoseconds()) / float64(n)
	b.ReportMetric(each/clock, "cycles/frame")
	b.ReportMetric(each, "ns/frame")
}

var product uint64 = 3

// cycleTime measures how long a cycle is, in nanoseconds: a multiplication that waits for the
// one before takes three of them on the processors of the last twenty years.
func cycleTime() float64 {
	const n = 1 << 23
	best, x := time.Hour, product
	for range 5 {
		start := time.Now()
		for range n {
			x *= 0x9e3779b97f4a7c15
		}
		best = min(best, time.Since(start))
	}
	product = x
	return float64(best.Nanoseconds()) / n / 3
}
