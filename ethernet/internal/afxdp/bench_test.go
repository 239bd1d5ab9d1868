package afxdp_test

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// benchBurst is the number of frames that are sent at once at most.
const benchBurst = 32

// BenchmarkStream sends frames from one thread and takes them on another, each with a core of its
// own. They are not looked at. It is the least that AF_XDP takes between two interfaces.
func BenchmarkStream(b *testing.B) {
	for _, mtu := range []int{1500, 9000, ethernet.MaxMTUOverAFXDP} {
		b.Run(fmt.Sprint(mtu), func(b *testing.B) {
			b.ReportAllocs()
			left, right := jumboPair(b, mtu)
			c := ethernet.Options{MTU: mtu, Pool: porttest.NewPool(b, ethernet.PoolOptions{Buffers: 1536, Size: (mtu+4415)/4096*4096 - 64})}
			from := open(b, "afxdp:"+left, c).Queue(0)
			c.Pool = porttest.NewPool(b, c.Pool.Options())
			to := open(b, "afxdp:"+right, c).Queue(0)
			length := mtu + ethernet.HeaderSize
			b.SetBytes(int64(length))
			taken := make(chan error, 1)
			var got atomic.Int64
			go func() { taken <- take(to, b.N, &got) }()
			must.OK(b, pin(1))
			frames, sent := make([]ethernet.Frame, benchBurst), 0
			for b.ResetTimer(); sent < b.N; {
				// As many are under way as in a connection's window, and as a receive ring holds.
				window := min(64, 512/(length/4096+2))
				want := min(benchBurst, b.N-sent, window-(sent-int(got.Load())))
				n := from.Cache().Alloc(frames[:max(0, want)])
				for i := range frames[:n] {
					frames[i].Length = uint16(length)
				}
				m := must.Get(from.Send(frames[:n]))(b)
				from.Cache().Free(frames[m:n])
				sent += m
			}
			must.OK(b, <-taken)
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
		case time.Since(last) > timeout:
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
