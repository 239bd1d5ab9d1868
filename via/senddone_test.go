package via_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// TestSendDoneFindsEach: once the peer's program has a message, one call of SendDone finds that it was sent, also where the call
// looks at all that the NIC has to do.
func TestSendDoneFindsEach(t *testing.T) {
	ctx := t.Context()
	var nics [2]*via.NIC
	for i := range nics {
		n := must.Get(via.Open(ctx, "emu:?wire=mem:senddone", via.Options{}))(t)
		defer n.Close()
		nics[i] = n
	}
	w := conform.NewWorld(t, nics[0], nics[1])
	x, y := w.Connect(conform.Setup{Memory: 256})
	s, r := x.Send[0], y.Recv[0]
	x.Prepare(t, s, 0, 64)
	y.Prepare(t, r, 64, 64)
	for i := range 1000 {
		must.OK(t, errors.Join(y.VI.PostRecv(r), x.VI.PostSend(s)))
		_, err := y.VI.RecvDone()
		for looks := 0; err == via.ErrNotDone && looks < 1_000_000; looks++ {
			_, err = y.VI.RecvDone()
		}
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		must.Get(x.VI.SendDone())(t)
		s.Rearm()
		r.Rearm()
	}
}

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
				must.OK(t, y.VI.PostRecv(y.Recv[0]))
				must.OK(t, x.VI.PostSend(x.Send[0]))
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
