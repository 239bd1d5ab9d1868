package afxdp_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// BenchmarkVeth moves frames from one end of a veth pair to the other, in bursts of 32: by
// ports of this package, and by packet sockets (AF_PACKET), which take a call for each
// frame at each end.
func BenchmarkVeth(b *testing.B) {
	for _, length := range []int{64, 1500} {
		for _, options := range []string{"", "?mode=generic"} {
			b.Run(fmt.Sprintf("afxdp%s/%d", options, length), func(b *testing.B) {
				left, right := pair(b, 1)
				c := ethernet.Options{Pool: newPool(b, ethernet.PoolOptions{})}
				benchPorts(b, open(b, "afxdp:"+left+options, c).Queue(0), open(b, "afxdp:"+right+options, c).Queue(0), length)
			})
		}
		b.Run(fmt.Sprintf("afpacket/%d", length), func(b *testing.B) {
			left, right := pair(b, 1)
			benchSockets(b, raw(b, left), raw(b, right), length)
		})
	}
}

// BenchmarkStream sends frames from one thread and takes them on another, each with a core of its own,
// and looks at none: the least that it takes to move bytes between two interfaces by AF_XDP.
func BenchmarkStream(b *testing.B) {
	for _, mtu := range []int{1500, 9000, ethernet.MaxMTUOverAFXDP} {
		b.Run(fmt.Sprint(mtu), func(b *testing.B) {
			left, right := jumboPair(b, mtu)
			c := ethernet.Options{MTU: mtu, Pool: newPool(b, ethernet.PoolOptions{Buffers: 1536, Size: (mtu+4415)/4096*4096 - 64})}
			from := open(b, "afxdp:"+left, c).Queue(0)
			c.Pool = newPool(b, c.Pool.Options())
			to := open(b, "afxdp:"+right, c).Queue(0)
			length := mtu + ethernet.HeaderSize
			b.SetBytes(int64(length))
			taken := make(chan error, 1)
			var got atomic.Int64
			go func() { taken <- take(to, b.N, &got) }()
			if err := pin(1); err != nil {
				b.Fatal(err)
			}
			frames, sent := make([]ethernet.Frame, benchBurst), 0
			for b.ResetTimer(); sent < b.N; {
				// As many are under way as in a connection's window, and as a receive ring holds.
				window := min(64, 512/(length/4096+2))
				want := min(benchBurst, b.N-sent, window-(sent-int(got.Load())))
				n := from.Cache().Alloc(frames[:max(0, want)])
				for i := range frames[:n] {
					frames[i].Length = uint16(length)
				}
				m, err := from.Send(frames[:n])
				if err != nil {
					b.Fatal(err)
				}
				from.Cache().Free(frames[m:n])
				sent += m
			}
			if err := <-taken; err != nil {
				b.Fatal(err)
			}
		})
	}
}

// take takes n frames on a thread of its own, and counts them in got.
func take(q ethernet.Queue, n int, got *atomic.Int64) error {
	if err := pin(0); err != nil {
		return err
	}
	frames := make([]ethernet.Frame, benchBurst)
	for last := time.Now(); got.Load() < int64(n); {
		m, err := q.Receive(frames)
		if err != nil {
			return err
		}
		q.Cache().Free(frames[:m])
		switch got.Add(int64(m)); {
		case m > 0:
			last = time.Now()
		case time.Since(last) > patience:
			return fmt.Errorf("%d of %d frames have come", got.Load(), n)
		}
	}
	return nil
}

// pin has the goroutine a thread of its own on a core, which ends with it.
func pin(core int) error {
	runtime.LockOSThread()
	var set unix.CPUSet
	set.Set(core)
	return unix.SchedSetaffinity(0, &set)
}

const benchBurst = 32

func benchPorts(b *testing.B, from, to ethernet.Queue, length int) {
	frames := make([]ethernet.Frame, benchBurst)
	b.ReportAllocs()
	defer func() { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s") }()
	for done := 0; b.Loop(); done++ {
		if done%benchBurst != 0 {
			continue
		}
		n := from.Cache().Alloc(frames)
		for i := range frames[:n] {
			frames[i].Length = uint16(length)
		}
		for sent := 0; sent < n; {
			m, err := from.Send(frames[sent:n])
			if err != nil {
				b.Fatal(err)
			}
			sent += m
		}
		for got := 0; got < n; {
			m, err := to.Receive(frames)
			if err != nil {
				b.Fatal(err)
			}
			to.Cache().Free(frames[:m])
			if got += m; m == 0 {
				runtime.Gosched()
			}
		}
	}
}

func benchSockets(b *testing.B, from, to int, length int) {
	frame, got := make([]byte, length), make([]byte, 2048)
	porttest.Fill(frame, 0)
	b.ReportAllocs()
	defer func() { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s") }()
	for done := 0; b.Loop(); done++ {
		if done%benchBurst != 0 {
			continue
		}
		for range benchBurst {
			if _, err := unix.Write(from, frame); err != nil {
				b.Fatal(err)
			}
		}
		for range benchBurst {
			if _, err := unix.Read(to, got); err != nil {
				b.Fatal(err)
			}
		}
	}
}
