package via_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// TestSendDoneFindsEach: once the peer's program has a message, one call of SendDone finds that it was sent, also where the call
// looks at all that the NIC has to do.
func TestSendDoneFindsEach(t *testing.T) {
	ctx := t.Context()
	var nics [2]*via.NIC
	for i := range nics {
		n, err := via.Open(ctx, "emu:?wire=mem:senddone", via.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		nics[i] = n
	}
	w := conform.NewWorld(t, nics[0], nics[1])
	x, y := w.Connect(conform.Setup{Memory: 256})
	s, r := x.Send[0], y.Recv[0]
	x.Prepare(t, s, 0, 64)
	y.Prepare(t, r, 64, 64)
	for i := range 1000 {
		if err := errors.Join(y.VI.PostRecv(r), x.VI.PostSend(s)); err != nil {
			t.Fatal(err)
		}
		_, err := y.VI.RecvDone()
		for looks := 0; err == via.ErrNotDone && looks < 1_000_000; looks++ {
			_, err = y.VI.RecvDone()
		}
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if _, err := x.VI.SendDone(); err != nil {
			t.Fatalf("send %d: %v", i, err)
		}
		s.Rearm()
		r.Rearm()
	}
}
