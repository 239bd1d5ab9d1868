package mqnic_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakemqnic"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// The benchmarks below measure the driver against a device that does at once what is asked of it:
// frames of 60 bytes that nobody looks at. A doorbell is a call, as over vfio-user; of a board it is
// a store. What the device does is in the result; BenchmarkDevice measures that alone. Those of igb
// and virtio are alike.

var bursts = []int{1, 8, 32, 256}

func benchPort(b *testing.B, pool *ethernet.Pool) (*fakemqnic.Device, ethernet.Queue) {
	b.Helper()
	d := newFake(b, fakemqnic.Options{})
	q := open(b, d, ethernet.Options{Pool: pool, Promiscuous: true}).Queue(0)
	d.Quick = true
	b.Cleanup(func() { d.Quick = false })
	return d, q
}

// perBurst runs f for each size of burst, with a port and its device.
func perBurst(b *testing.B, f func(b *testing.B, d *fakemqnic.Device, q ethernet.Queue, frames []ethernet.Frame)) {
	for _, burst := range bursts {
		b.Run(fmt.Sprintf("burst%d", burst), func(b *testing.B) {
			d, q := benchPort(b, porttest.NewPool(b, ethernet.PoolOptions{}))
			frames := make([]ethernet.Frame, burst)
			porttest.PerFrame(b, burst, func() { f(b, d, q, frames) })
		})
	}
}

func receive(b *testing.B, q ethernet.Queue, frames []ethernet.Frame) {
	if n, err := q.Receive(frames); n != len(frames) || err != nil {
		b.Fatal(n, err)
	}
}

func send(b *testing.B, q ethernet.Queue, frames []ethernet.Frame) {
	if n, err := q.Send(frames); n != len(frames) || err != nil {
		b.Fatal(n, err)
	}
}

func BenchmarkReceive(b *testing.B) {
	perBurst(b, func(b *testing.B, d *fakemqnic.Device, q ethernet.Queue, frames []ethernet.Frame) {
		d.Fill(0, 0, 60, len(frames))
		receive(b, q, frames)
		q.Cache().Free(frames)
	})
}

func BenchmarkSend(b *testing.B) {
	perBurst(b, func(b *testing.B, d *fakemqnic.Device, q ethernet.Queue, frames []ethernet.Frame) {
		q.Cache().Alloc(frames)
		for i := range frames {
			frames[i].Length = 60
		}
		send(b, q, frames)
		d.Drain(0, 0)
	})
}

func BenchmarkForward(b *testing.B) {
	for _, burst := range bursts {
		b.Run(fmt.Sprintf("burst%d", burst), func(b *testing.B) {
			pool := porttest.NewPool(b, ethernet.PoolOptions{})
			in, from := benchPort(b, pool)
			out, to := benchPort(b, pool)
			frames := make([]ethernet.Frame, burst)
			porttest.PerFrame(b, burst, func() {
				in.Fill(0, 0, 60, burst)
				receive(b, from, frames)
				send(b, to, frames)
				out.Drain(0, 0)
			})
		})
	}
}

// BenchmarkDevice is what the devices of BenchmarkForward do.
func BenchmarkDevice(b *testing.B) {
	perBurst(b, func(_ *testing.B, d *fakemqnic.Device, _ ethernet.Queue, frames []ethernet.Frame) {
		d.Refill(0, 0, len(frames))
		d.Fill(0, 0, 60, len(frames))
		d.Drain(0, 0)
	})
}
