package via_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// rdmaBench is two ends of which the first writes to and reads from the second.
type rdmaBench struct {
	p    *conform.World
	x, y *conform.End
	to   *via.Memory
}

func newRDMABench(b *testing.B, size int) *rdmaBench {
	b.Helper()
	first, second := conform.OnMemory(b, "", via.Options{})
	p := conform.NewWorld(b, first, second)
	x, y := p.Connect(conform.Setup{Segments: 2, Memory: 2*size + 64,
		Attributes: via.VIAttributes{MaxTransfer: 64 << 10, RDMAWrite: true, RDMARead: true}})
	to, err := second.Alloc(b.Context(), size, via.MemoryAttributes{RDMAWrite: true, RDMARead: true})
	if err != nil {
		b.Fatal(err)
	}
	return &rdmaBench{p, x, y, to}
}

// do posts d and takes it back.
func (r *rdmaBench) do(b *testing.B, d *via.Descriptor) {
	if err := r.x.VI.PostSend(d); err != nil {
		b.Fatal(err)
	}
	if _, err := take(r.x.VI.SendDone); err != nil {
		b.Fatal(err)
	}
	d.Rearm()
}

// BenchmarkRDMA compares RDMA writes with sends, from the post to the completion at the
// sender, which finds the receive posted again, and reads with a round trip of sends of
// the same size. x-send and x-round-trip are how many times longer RDMA takes (above 1)
// or shorter.
func BenchmarkRDMA(b *testing.B) {
	for _, size := range []int{64, 8192, 65536} {
		b.Run("write/"+sizeName(size), func(b *testing.B) {
			r := newRDMABench(b, size)
			write, send := r.x.Prepare(b, r.x.Send[0], 0, size), r.x.Prepare(b, r.x.Send[1], 0, size)
			receive := r.y.Prepare(b, r.y.Recv[0], 0, size)
			if err := write.SetRDMAWrite(r.to.Address(), r.to.Handle()); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				r.do(b, write)
			}
			sends := func() {
				if err := r.y.VI.PostRecv(receive); err != nil {
					b.Fatal(err)
				}
				r.do(b, send)
				if _, err := take(r.y.VI.RecvDone); err != nil {
					b.Fatal(err)
				}
				receive.Rearm()
			}
			b.ReportMetric(median(2000, func() { r.do(b, write) })/median(2000, sends), "x-send")
		})
	}
	b.Run("read/64", func(b *testing.B) {
		r := newRDMABench(b, 64)
		read := r.x.Prepare(b, r.x.Send[0], 0, 64)
		if err := read.SetRDMARead(r.to.Address(), r.to.Handle()); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			r.do(b, read)
		}
		x, y := conform.OnMemory(b, "", via.Options{})
		p := newPingPong(b, conform.NewWorld(b, x, y), 64)
		b.ReportMetric(median(2000, func() { r.do(b, read) })/median(2000, func() { p.round(b) }), "x-round-trip")
	})
}
