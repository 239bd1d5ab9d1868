package via_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// The benchmarks run two emulated NICs on a memory wire, engines inline: one
// goroutine does the work of both applications and both NICs. Beside each figure
// stands what a plain copy or a Go channel does with as many bytes in the same
// run, so that figures of different machines can be compared.

// BenchmarkLatency reports the time from a post to the receive at the other end,
// as half a round trip: the mean and the median. x-channel is how many times
// longer (above 1) or shorter it is than handing a copy of the bytes to another
// goroutine over a channel.
func BenchmarkLatency(b *testing.B) {
	for _, size := range []int{64, 4096, 8192, 65536} {
		b.Run(sizeName(size), func(b *testing.B) {
			x, y := conform.OnMemory(b, "", via.Options{})
			p := newPingPong(b, conform.NewWorld(b, x, y), size)
			for range 100 {
				p.round(b)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.round(b)
			}
			mean := float64(b.Elapsed().Nanoseconds()) / float64(2*b.N)
			p50 := median(2000, func() { p.round(b) }) / 2
			channel := median(2000, channelRoundTrip(b, size)) / 2
			b.ReportMetric(mean, "ns/one-way")
			b.ReportMetric(p50, "p50-ns/one-way")
			b.ReportMetric(p50/channel, "x-channel")
		})
	}
}

// BenchmarkConn is BenchmarkLatency between two Conns. over-VI-ns is the cost of buffers and
// the lock: the median less that of two VIs in the same run.
func BenchmarkConn(b *testing.B) {
	for _, size := range []int{64, 8192} {
		b.Run(sizeName(size), func(b *testing.B) {
			from, to := connPair(b, via.ConnOptions{MaxMessage: size}, emulator.PairOptions{})
			hop := func() {
				if _, err := from.Acquire(b.Context()); err != nil {
					b.Fatal(err)
				}
				if err := from.Post(size); err != nil {
					b.Fatal(err)
				}
				m, err := to.TryReceive()
				for m == nil && err == nil {
					from.Poll()
					m, err = to.TryReceive()
				}
				if err == nil {
					err = to.Release()
				}
				if err != nil {
					b.Fatal(err)
				}
				from, to = to, from
			}
			b.ReportAllocs()
			for b.Loop() {
				hop()
			}
			mean := float64(b.Elapsed().Nanoseconds()) / float64(b.N)
			p50 := median(2000, func() { hop(); hop() }) / 2
			x, y := conform.OnMemory(b, "", via.Options{})
			bare := newPingPong(b, conform.NewWorld(b, x, y), size)
			b.ReportMetric(mean, "ns/one-way")
			b.ReportMetric(p50, "p50-ns/one-way")
			b.ReportMetric(p50-median(2000, func() { bare.round(b) })/2, "over-VI-ns")
			closeBoth(b, from, to)
		})
	}
}

// BenchmarkStream reports how fast messages flow in one direction, in batches, through
// completion queues; short ones cost the calls alone. x-copy is the time relative to a copy
// of the same bytes from one buffer to another.
func BenchmarkStream(b *testing.B) {
	for _, c := range []struct{ size, batch int }{{64, 1}, {64, 32}, {8192, 16}, {65536, 16}} {
		b.Run(fmt.Sprintf("%s/batch-%d", sizeName(c.size), c.batch), func(b *testing.B) {
			x, y := conform.OnMemory(b, "", via.Options{})
			s := newCQStream(b, conform.NewWorld(b, x, y), c.size, c.batch)
			b.SetBytes(int64(c.size * c.batch)) // in each turn of the loop
			b.ReportAllocs()
			for b.Loop() {
				s.round(b)
			}
			each := float64(b.Elapsed().Nanoseconds()) / float64(c.batch*b.N)
			b.ReportMetric(each, "ns/message")
			// As many buffers as the stream has, so that caches are as warm.
			src, dst := make([]byte, c.batch*c.size), make([]byte, c.batch*c.size)
			i := 0
			plain := median(4000, func() {
				copy(dst[i%c.batch*c.size:][:c.size], src[i%c.batch*c.size:][:c.size])
				i++
			})
			b.ReportMetric(each/plain, "x-copy")
		})
	}
}

// median calls f n times and returns the middle of the times it took, in
// nanoseconds.
func median(n int, f func()) float64 {
	times := make([]time.Duration, n)
	for i := range times {
		start := time.Now()
		f()
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return max(float64(times[n/2].Nanoseconds()), 1)
}

// channelRoundTrip returns a function that copies size bytes, hands them to
// another goroutine, and gets a copy back.
func channelRoundTrip(b *testing.B, size int) func() {
	there, back := make(chan []byte), make(chan []byte)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		answer := make([]byte, size)
		for m := range there {
			copy(answer, m)
			back <- answer
		}
	}()
	b.Cleanup(func() {
		close(there)
		<-ended
	})
	question, got := make([]byte, size), make([]byte, size)
	return func() {
		copy(question, got)
		there <- question
		copy(got, <-back)
	}
}
