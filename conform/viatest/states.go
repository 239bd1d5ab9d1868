package viatest

import (
	"errors"
	"os"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// testCloseStates closes a NIC in each state that a program can leave it in. The
// other NIC goes on, and its connections have ended in order, unless what was posted
// was cut off, or the wire has lost the disconnect: a NIC that is closed does not repeat it.
func testCloseStates(t T, p *Pair, open Open) {
	const tries = 5
	depth := via.VIAttributes{SendDepth: 16, RecvDepth: 16}
	for _, c := range []struct {
		name string
		// make reports whether the state has to be made again, since the wire lost the disconnect.
		make func(t T, p *Pair) (again bool)
	}{
		{"idle VI", func(t T, p *Pair) bool { NewEnd(t, p.A, Setup{}); return false }},
		{"receives posted", func(t T, p *Pair) bool {
			x := NewEnd(t, p.A, Setup{})
			OK(t, x.VI.PostRecv(x.Prepare(t, x.Recv[0], 0, 8)))
			return false
		}},
		{"connected", func(t T, p *Pair) bool {
			_, y := p.Connect(t, Setup{})
			OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 64)))
			OK(t, p.A.Close())
			_, err := p.Take(t, y.VI.RecvDone)
			lost := errors.Is(err, via.ErrPeerLost)
			if !lost {
				wantEnd(t, "a receive of the other end", err, via.ErrDisconnected)
			}
			wantState(t, y.VI, via.ErrorState)
			return lost
		}},
		{"sending", func(t T, p *Pair) bool {
			x, _ := p.Connect(t, Setup{})
			for i := range 8 {
				OK(t, x.VI.PostSend(x.Prepare(t, x.Send[i], i*4096, 4096)))
			}
			return false
		}},
		{"completions not taken", func(t T, p *Pair) bool {
			cq := Must(p.A.CreateCQ(Context(t), 32))(t)
			x := Must(Equip(Context(t), Must(p.A.CreateVI(Context(t), depth, cq, cq))(t), 4096, 1))(t)
			y := NewEnd(t, p.B, Setup{})
			OK(t, ConnectVIs(Context(t), x.VI, y.VI, t.Name()))
			for i := range 8 {
				OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[i], i*64, 64)))
				OK(t, x.VI.PostSend(x.Prepare(t, x.Send[i], i*64, 64)))
			}
			Must(cq.Wait(Context(t)))(t)
			return false
		}},
		{"error state", func(t T, p *Pair) bool {
			x, y := p.Connect(t, Setup{})
			OK(t, y.VI.Disconnect(Context(t)))
			p.Until(t, "the other end to notice", func() bool {
				return Must(x.VI.Query(Context(t)))(t).State == via.ErrorState
			})
			return false
		}},
	} {
		subtest(t, c.name, func(t T) {
			for again, try := true, 0; again; try++ {
				if try == tries {
					t.Fatalf("none of %d connections has ended in order", tries)
				}
				p := p
				if c.name != "idle VI" { // the first has the pair that the test was given
					p = NewPair(open(t))
				}
				again = c.make(t, p)
				if err := p.A.Close(); err != nil && c.name != "connected" {
					t.Error(err)
				}
				_, err := p.A.CreatePtag(Context(t))
				WantError(t, "after Close", err, via.ErrClosed)
				Must(p.B.CreatePtag(Context(t)))(t)
				OK(t, p.B.Close()) // there may be two NICs only: the next case has them anew
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
		for end := time.Now().Add(Patience); after > before && time.Now().Before(end); after = openFiles(t) {
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
