package igb_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// The benchmarks below measure the driver against a device that does at once what is
// asked of it: frames of 60 bytes that nobody looks at, doorbells in mapped memory. What
// the device does is in the result; BenchmarkDevice measures that alone, to be subtracted.
// ixy's forwarder takes about 120 cycles a frame in C and 160 in Go at bursts of 32
// (Emmerich et al., "The Case for Writing Network Drivers in High-Level Programming
// Languages", ANCS 2019).

var bursts = []int{1, 8, 32, 256}

func benchPort(b *testing.B, pool *ethernet.Pool) (*fakeigb.Device, ethernet.Queue) {
	b.Helper()
	d := newFake(b, fakeigb.Options{Mapped: true})
	return d, open(b, d, ethernet.Options{Pool: pool}).Queue(0)
}

func BenchmarkReceive(b *testing.B) {
	for _, burst := range bursts {
		b.Run(fmt.Sprintf("burst%d", burst), func(b *testing.B) {
			d, q := benchPort(b, porttest.NewPool(b, ethernet.PoolOptions{}))
			frames := make([]ethernet.Frame, burst)
			porttest.PerFrame(b, burst, func() {
				d.Fill(0, 60, burst)
				n, err := q.Receive(frames)
				if n != burst || err != nil {
					b.Fatal(n, err)
				}
				q.Cache().Free(frames)
			})
		})
	}
}

func BenchmarkSend(b *testing.B) {
	for _, burst := range bursts {
		b.Run(fmt.Sprintf("burst%d", burst), func(b *testing.B) {
			d, q := benchPort(b, porttest.NewPool(b, ethernet.PoolOptions{}))
			frames := make([]ethernet.Frame, burst)
			porttest.PerFrame(b, burst, func() {
				q.Cache().Alloc(frames)
				for i := range frames {
					frames[i].Length = 60
				}
				n, err := q.Send(frames)
				if n != burst || err != nil {
					b.Fatal(n, err)
				}
				d.Drain(0)
			})
		})
	}
}

func BenchmarkForward(b *testing.B) {
	for _, burst := range bursts {
		b.Run(fmt.Sprintf("burst%d", burst), func(b *testing.B) {
			pool := porttest.NewPool(b, ethernet.PoolOptions{})
			in, from := benchPort(b, pool)
			out, to := benchPort(b, pool)
			frames := make([]ethernet.Frame, burst)
			porttest.PerFrame(b, burst, func() {
				in.Fill(0, 60, burst)
				n, err := from.Receive(frames)
				if n != burst || err != nil {
					b.Fatal(n, err)
				}
				if n, err = to.Send(frames); n != burst || err != nil {
					b.Fatal(n, err)
				}
				out.Drain(0)
			})
		})
	}
}

// BenchmarkDevice is what the devices of BenchmarkForward do.
func BenchmarkDevice(b *testing.B) {
	for _, burst := range bursts {
		b.Run(fmt.Sprintf("burst%d", burst), func(b *testing.B) {
			d, _ := benchPort(b, porttest.NewPool(b, ethernet.PoolOptions{}))
			porttest.PerFrame(b, burst, func() {
				d.Fill(0, 60, burst)
				d.Refill(0)
				d.Drain(0)
			})
		})
	}
}
