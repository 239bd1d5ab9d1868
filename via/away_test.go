package via_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// TestReceiverLooksAway: a send completes once the receiver has taken its message, although the receiver, whose
// polls run its NIC, does not look again. On all wires the message itself, or what was said before, tells it.
func TestReceiverLooksAway(t *testing.T) {
	for _, share := range []string{"off", "on", "write"} {
		t.Run(share, func(t *testing.T) {
			a, b := onSharedMemory(t, "&engine=inline&share="+share)
			w := conform.NewWorld(t, a, b)
			x, y := w.Connect(conform.Setup{Attributes: via.VIAttributes{MaxTransfer: 8 << 10}})
			for _, size := range []int{64, 1000, 8 << 10} {
				x.Prepare(t, x.Send[0], 0, size)
				y.Prepare(t, y.Recv[0], 0, size)
				if err := y.VI.PostRecv(y.Recv[0]); err != nil {
					t.Fatal(err)
				}
				if err := x.VI.PostSend(x.Send[0]); err != nil {
					t.Fatal(err)
				}
				w.Until("the message", func() bool {
					d, err := y.VI.RecvDone()
					return err == nil && d.Length() == uint32(size)
				})
				if _, err := x.VI.SendWait(conform.Context(w)); err != nil {
					t.Errorf("%d bytes: %v", size, err)
				}
			}
		})
	}
}
