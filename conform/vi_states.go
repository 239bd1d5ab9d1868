package conform

import (
	"errors"
	"os"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// testCloseStates closes a NIC in each state that a program can leave it in. The other NIC goes on.
// Its connections have ended in order, unless a message was cut off or the wire has lost the
// disconnect: a NIC that is closed does not repeat it.
func testCloseStates(w *World) {
	const tries = 5
	depth := via.VIAttributes{SendDepth: 16, RecvDepth: 16}
	for _, c := range []struct {
		name string
		// make reports whether the state has to be made again, since the wire lost the disconnect. try
		// counts from 0.
		make func(w *World, try int) (again bool)
	}{
		{"idle VI", func(w *World, _ int) bool { NewEnd(w, w.A, Setup{}); return false }},
		{"receives posted", func(w *World, _ int) bool {
			x := NewEnd(w, w.A, Setup{})
			OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 0, 8)))
			return false
		}},
		{"connected", func(w *World, try int) bool {
			x, y := w.Connect(Setup{})
			// So that a wire that loses by a seed does not lose the same frame each time.
			for range try {
				OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 64)))
				OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 64)))
				Must(w.Take(y.VI.RecvDone))(w)
				Must(w.Take(x.VI.SendDone))(w)
			}
			OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 64)))
			OK(w, w.A.Close())
			_, err := w.Take(y.VI.RecvDone)
			lost := errors.Is(err, via.ErrPeerLost)
			if !lost {
				wantEnd(w, "a receive of the other end", err, via.ErrDisconnected)
			}
			wantState(w, y.VI, via.ErrorState)
			return lost
		}},
		{"sending", func(w *World, _ int) bool {
			x, _ := w.Connect(Setup{})
			for i := range 8 {
				OK(w, x.VI.PostSend(x.Prepare(w, x.Send[i], i*4096, 4096)))
			}
			return false
		}},
		{"completions not taken", func(w *World, _ int) bool {
			cq := Must(w.A.CreateCQ(Context(w), 32))(w)
			x := Must(Equip(Context(w), w.A, Must(w.A.CreateVI(Context(w), depth, cq, cq))(w), 4096, 1))(w)
			y := NewEnd(w, w.B, Setup{})
			OK(w, ConnectVIs(Context(w), x.VI, y.VI, w.Name()))
			for i := range 8 {
				OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[i], i*64, 64)))
				OK(w, x.VI.PostSend(x.Prepare(w, x.Send[i], i*64, 64)))
			}
			Must(cq.Wait(Context(w)))(w)
			return false
		}},
		{"error state", func(w *World, _ int) bool {
			x, y := w.Connect(Setup{})
			OK(w, y.VI.Disconnect(Context(w)))
			w.Until("the other end to notice", func() bool {
				return Must(x.VI.Query(Context(w)))(w).State == via.ErrorState
			})
			return false
		}},
	} {
		w.part(c.name, func(w *World) {
			for again, try := true, 0; again; try++ {
				if try == tries {
					w.Fatalf("none of %d connections has ended in order", tries)
				}
				if c.name != "idle VI" { // the first has the pair that the test was given
					w = w.another()
				}
				again = c.make(w, try)
				if err := w.A.Close(); err != nil && c.name != "connected" {
					w.Error(err)
				}
				_, err := w.A.CreatePtag(Context(w))
				wantError(w, "after Close", err, via.ErrClosed)
				Must(w.B.CreatePtag(Context(w)))(w)
				OK(w, w.B.Close()) // there may be two NICs only: the next case has them anew
			}
		})
	}
}

// checkFiles fails the test if files are left open after what is cleaned up later
// than this call.
func checkFiles(t T) {
	t.Helper()
	// The runtime opens what it keeps open: its poller.
	r, w, err := os.Pipe()
	OK(t, err)
	OK(t, r.Close())
	OK(t, w.Close())
	before := openFiles(t)
	t.Cleanup(func() {
		after := openFiles(t)
		// A server that a NIC has left closes its end by itself.
		for end := time.Now().Add(Timeout); after > before && time.Now().Before(end); after = openFiles(t) {
			time.Sleep(time.Millisecond)
		}
		if after > before {
			t.Errorf("%d files are open, %d before the test", after, before)
		}
	})
}

// openFiles counts the process's file descriptors.
func openFiles(t T) int {
	t.Helper()
	f, err := os.ReadDir("/proc/self/fd")
	OK(t, err)
	return len(f)
}
