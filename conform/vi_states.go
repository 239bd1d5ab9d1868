package conform

import (
	"errors"

	"github.com/trapeze-nic/trapeze/via"
)

// testCloseConnected closes a NIC with a connection. The other end learns that it ended in order, unless the wire has lost
// the disconnect: a NIC that is closed does not repeat it.
func testCloseConnected(w *World) {
	const tries = 5
	for try := range tries {
		if try > 0 {
			w = w.another()
		}
		x, y := w.Connect(Setup{})
		// So that a wire that loses by a seed does not lose the same frame each time.
		for range try {
			exchange(w, x, y, 64, 1)
		}
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 64)))
		err := w.A.Close()
		_, ended := w.Take(y.VI.RecvDone)
		wantState(w, y.VI, via.ErrorState)
		OK(w, w.B.Close()) // there may be two NICs only
		if !errors.Is(ended, via.ErrPeerLost) {
			OK(w, err)
			wantEqual(w, sayEnd(ended), via.ErrDisconnected.Error(), "how a receive of the other end says that the connection has ended")
			return
		}
	}
	w.Fatalf("none of %d connections has ended in order", tries)
}
