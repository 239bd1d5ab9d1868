package conform

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/via"
)

// testTaken: when a receiver takes all messages or some of them and disconnects, the sender knows
// exactly which were taken, and that it has left.
func testTaken(w *World) {
	for _, level := range []via.Reliability{via.ReliableDelivery, via.ReliableReception} {
		for _, n := range []int{1, 16} {
			for _, left := range []int{0, 3} {
				x, y := w.Connect(Setup{Attributes: via.VIAttributes{Reliability: level}})
				for i := range n {
					OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[i], 100*i, 100)))
				}
				for i := range n + left {
					OK(w, x.VI.PostSend(x.Prepare(w, x.Send[i], 100*i, 100)))
				}
				sends := make(chan []error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(w.Context(), Timeout)
					defer cancel()
					var errs []error
					for range n + left {
						_, err := x.VI.SendWait(ctx)
						errs = append(errs, err)
					}
					sends <- errs
				}()
				for i := range n {
					d := Must(y.VI.RecvWait(Context(w)))(w)
					if d.Length() != 100 {
						w.Errorf("message %d of %d bytes", i, d.Length())
					}
				}
				OK(w, y.VI.Disconnect(Context(w)))
				var errs []error
				w.Until("the sends to complete", func() bool {
					select {
					case errs = <-sends:
						return true
					default:
						return false
					}
				})
				for i, err := range errs {
					switch {
					case i < n && err != nil:
						w.Errorf("message %d was taken, and its sender is told: %v", i, err)
					case i >= n:
						wantEnd(w, "a message that was not taken", err, via.ErrDisconnected)
					}
				}
				release(w, x, y)
			}
		}
	}
}

// wantEnd fails the test unless err, of a descriptor, says that the connection ended
// in the way of end, and in no other; zero is none of them.
func wantEnd(t T, what string, err error, end via.Code) {
	t.Helper()
	wantError(t, what, err, via.ErrDescriptor)
	wantOnlyEnd(t, what, err, end)
	var s *via.StatusError
	if !errors.As(err, &s) || s.Ended != end {
		t.Errorf("%s: error %v, want one that says %q", what, err, end)
	}
}

func wantOnlyEnd(t T, what string, err error, end via.Code) {
	t.Helper()
	for _, other := range []via.Code{via.ErrDisconnected, via.ErrPeerLost, via.ErrConnectionBroken} {
		if errors.Is(err, other) != (other == end) {
			t.Errorf("%s: error %v, which matches %q: %v", what, err, other, other != end)
		}
	}
}

// release takes back all that is on the queues of ends and destroys their VIs.
func release(w *World, ends ...*End) {
	w.Helper()
	for _, e := range ends {
		OK(w, e.VI.Disconnect(Context(w)))
		for _, done := range []func() (*via.Descriptor, error){e.VI.SendDone, e.VI.RecvDone} {
			for {
				if _, err := w.Take(done); err == via.ErrQueueEmpty {
					break
				}
			}
		}
		OK(w, e.VI.Close(Context(w)))
		OK(w, e.Memory.Close(Context(w)))
	}
}

// testEndings ends connections in different ways. It checks what both ends learn from the error of
// every descriptor, from the event, and from further calls.
func testEndings(w *World) {
	for _, c := range []struct {
		name string
		// end has y end the connection; both ends have 2 receives.
		end func(w *World, x, y *End)
		// y learns mine, or nothing if it is zero, and x learns theirs.
		mine, theirs via.Code
	}{
		{"disconnect", func(w *World, x, y *End) {
			OK(w, y.VI.Disconnect(Context(w)))
		}, 0, via.ErrDisconnected},
		{"disconnect after messages", func(w *World, x, y *End) {
			for i := range 2 {
				OK(w, y.VI.PostSend(y.Prepare(w, y.Send[i], 0, 10)))
			}
			w.MustTake(y.VI.SendDone)
			w.MustTake(y.VI.SendDone)
			OK(w, y.VI.Disconnect(Context(w)))
		}, 0, via.ErrDisconnected},
		{"disconnect that cuts a message off", func(w *World, x, y *End) {
			for i := range 3 { // x has receives for two
				OK(w, y.VI.PostSend(y.Prepare(w, y.Send[i], 0, 10)))
			}
			OK(w, y.VI.Disconnect(Context(w)))
		}, 0, via.ErrConnectionBroken},
		{"memory of a send that is gone", func(w *World, x, y *End) {
			m := Must(w.B.Alloc(Context(w), 64, via.MemoryAttributes{}))(w)
			y.Send[0].Prepare()
			OK(w, m.AddTo(y.Send[0], 0, 10))
			OK(w, m.Close(Context(w)))
			OK(w, y.VI.PostSend(y.Send[0]))
		}, via.ErrConnectionBroken, via.ErrConnectionBroken},
		{"receive too small", func(w *World, x, y *End) {
			OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 1000)))
		}, via.ErrConnectionBroken, via.ErrConnectionBroken},
	} {
		w.part(c.name, func(w *World) {
			x, y := w.Connect(Setup{})
			events := make(chan via.AsyncError, 64)
			for _, n := range []*via.NIC{w.A, w.B} {
				n.OnError(func(e via.AsyncError) {
					select {
					case events <- e:
					default: // more than the test waits for
					}
				})
				defer n.OnError(nil)
			}
			for i := range 2 {
				for _, e := range []*End{x, y} {
					OK(w, e.VI.PostRecv(e.Prepare(w, e.Recv[i], 100*i, 100)))
				}
			}
			c.end(w, x, y)
			for end, want := range map[*End]via.Code{x: c.theirs, y: c.mine} {
				state := via.ErrorState
				if want == 0 {
					state = via.Idle
				}
				w.Until("the end of the connection", func() bool {
					return Must(end.VI.Query(Context(w)))(w).State == state
				})
				for _, done := range []func() (*via.Descriptor, error){end.VI.RecvDone, end.VI.SendDone} {
					for {
						_, err := w.Take(done)
						if err == via.ErrQueueEmpty {
							break
						}
						if err != nil {
							wantEnd(w, "a descriptor", err, want)
						}
					}
				}
				if want == 0 {
					continue
				}
				w.Until("the event", func() bool {
					select {
					case e := <-events:
						if e.VI != end.VI {
							events <- e // the other end's
							return false
						}
						wantOnlyEnd(w, "the event", e.Reason(), want)
						return true
					default:
						return false
					}
				})
				// Going on says it again.
				OK(w, end.VI.PostSend(end.Prepare(w, end.Send[0], 0, 10)))
				_, err := w.Take(end.VI.SendDone)
				wantEnd(w, "a send in the error state", err, want)
				_, err = end.VI.ConnectRequest(Context(w), via.Address{MAC: w.A.Query().Address}, "")
				wantError(w, "connecting in the error state", err, via.ErrInvalidState)
				wantOnlyEnd(w, "connecting in the error state", err, want)
				// What was flushed before DISCONNECT keeps its reason.
				OK(w, end.VI.PostRecv(end.Prepare(w, end.Recv[0], 0, 10)))
				OK(w, end.VI.Disconnect(Context(w)))
				_, err = w.Take(end.VI.RecvDone)
				wantEnd(w, "a receive taken back after a disconnect", err, want)
			}
			// The next connection has an end of its own.
			OK(w, ConnectVIs(Context(w), x.VI, y.VI, w.Name()))
			OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 0, 10)))
			OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 10)))
			OK(w, x.VI.Disconnect(Context(w)))
			_, err := w.Take(x.VI.RecvDone)
			wantEnd(w, "a receive of the end that disconnects", err, 0)
			_, err = w.Take(y.VI.RecvDone)
			wantEnd(w, "a receive of the other end", err, via.ErrDisconnected)
			release(w, x, y)
		})
	}
}
