package emulator_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// BenchmarkShared is the processor time of a message between two applications on
// a wire in shared memory, of both NICs together: one goroutine drives them, so
// nothing overlaps. Payloads are copied twice, or lent and copied once.
func BenchmarkShared(b *testing.B) {
	for _, size := range []int{64, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20} {
		for _, share := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/share=%v", size, share), func(b *testing.B) {
				x, y := newSharers(b, share, share, nil)
				p := conform.NewWorld(b, x.nic, y.nic)
				from, to := p.Connect(conform.Setup{Memory: size,
					Attributes: via.VIAttributes{Reliability: via.ReliableDelivery, MaxTransfer: uint32(size)}})
				if share {
					waitShared(b, x, from.Memory.Bytes())
				}
				s, r := from.Prepare(b, from.Send[0], 0, size), to.Prepare(b, to.Recv[0], 0, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					s.Rearm()
					r.Rearm()
					if err := to.VI.PostRecv(r); err != nil {
						b.Fatal(err)
					}
					if err := from.VI.PostSend(s); err != nil {
						b.Fatal(err)
					}
					p.MustTake(to.VI.RecvDone)
					p.MustTake(from.VI.SendDone)
				}
			})
		}
	}
}
