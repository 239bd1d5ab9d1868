package ring_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// BenchmarkOneWay sends a ring's message of 128 bytes, and a VI's of 64, from one NIC to the
// other of this process, each taken before the next: the ratio of the two is what a ring costs.
func BenchmarkOneWay(b *testing.B) {
	names := map[bool]string{false: "SRAM", true: "shadow"}
	for _, access := range []bool{false, true} {
		b.Run("ring 128 B, "+names[access], func(b *testing.B) {
			p, q := conform.OnMemory(b, "", via.Options{})
			x, y := connect(b, p, q, ring.Options{Shadow: access, Reliability: via.ReliableDelivery, MaxPayload: ring.NoPayload})
			b.ReportAllocs()
			for b.Loop() {
				e, err := x.GetSend()
				must.OK(b, err)
				e.Bytes()[0]++
				must.OK(b, x.ReleaseSend(e))
				for {
					if e, err = y.GetRecv(); err != via.ErrNotDone {
						break
					}
				}
				must.OK(b, err)
				must.OK(b, y.ReleaseRecv(e))
				for x.CheckSent() == 0 {
				}
			}
		})
	}
	b.Run("VI 64 B", func(b *testing.B) {
		p, q := conform.OnMemory(b, "", via.Options{})
		x, y := conform.NewWorld(b, p, q).Connect(conform.Setup{})
		s, r := x.Prepare(b, x.Send[0], 0, 64), y.Prepare(b, y.Recv[0], 0, 64)
		must.OK(b, y.VI.PostRecv(r))
		b.ReportAllocs()
		for b.Loop() {
			x.Memory.Bytes()[0]++
			s.Rearm()
			must.OK(b, x.VI.PostSend(s))
			var err error
			for {
				if r, err = y.VI.RecvDone(); err != via.ErrNotDone {
					break
				}
			}
			must.OK(b, err)
			r.Rearm()
			must.OK(b, y.VI.PostRecv(r))
			for {
				if s, err = x.VI.SendDone(); err != via.ErrNotDone {
					break
				}
			}
			must.OK(b, err)
		}
	})
}

// BenchmarkFetch calls for a page over shared memory, whose server has a goroutine of its own.
func BenchmarkFetch(b *testing.B) {
	for _, size := range []int{0, 4 << 10, 8 << 10, 64 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			p, q := conform.OnMemory(b, "", via.Options{})
			x, y := connect(b, p, q, ring.Options{Reliability: via.ReliableDelivery, MaxPayload: 64 << 10})
			lent, into := alloc(b, q, 64<<10), alloc(b, p, 64<<10)
			serve(b, y, pages(b, lent, size))
			c := newCaller(b, x)
			request := make([]byte, 4)
			f := ring.Frame{Memory: into, Length: size}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				must.Get(c.Call(b.Context(), request, ring.Frame{}, f))(b)
			}
		})
	}
}
