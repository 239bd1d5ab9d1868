package via_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
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
	to := must.Get(second.Alloc(b.Context(), size, via.MemoryAttributes{RDMAWrite: true, RDMARead: true}))(b)
	return &rdmaBench{p, x, y, to}
}

// do posts d and takes it back.
func (r *rdmaBench) do(b *testing.B, d *via.Descriptor) {
	must.OK(b, r.x.VI.PostSend(d))
	must.Get(take(r.x.VI.SendDone))(b)
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
			must.OK(b, write.SetRDMAWrite(r.to.Address(), r.to.Handle()))
			b.ReportAllocs()
			for b.Loop() {
				r.do(b, write)
			}
			sends := func() {
				must.OK(b, r.y.VI.PostRecv(receive))
				r.do(b, send)
				must.Get(take(r.y.VI.RecvDone))(b)
				receive.Rearm()
			}
			b.ReportMetric(median(2000, func() { r.do(b, write) })/median(2000, sends), "x-send")
		})
	}
	b.Run("read/64", func(b *testing.B) {
		r := newRDMABench(b, 64)
		read := r.x.Prepare(b, r.x.Send[0], 0, 64)
		must.OK(b, read.SetRDMARead(r.to.Address(), r.to.Handle()))
		b.ReportAllocs()
		for b.Loop() {
			r.do(b, read)
		}
		x, y := conform.OnMemory(b, "", via.Options{})
		p := newPingPong(b, conform.NewWorld(b, x, y), 64)
		b.ReportMetric(median(2000, func() { r.do(b, read) })/median(2000, func() { p.round(b) }), "x-round-trip")
	})
}
