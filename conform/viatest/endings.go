package viatest

import (
	"context"
	"errors"

	"github.com/trapeze-nic/trapeze/via"
)

// testTaken: a receiver that takes all messages and disconnects at once, or in the
// middle, has the sender know exactly which were taken, and that it has left.
func testTaken(t T, p *Pair) {
	for _, level := range []via.Reliability{via.ReliableDelivery, via.ReliableReception} {
		for _, n := range []int{1, 16} {
			for _, left := range []int{0, 3} {
				x, y := p.Connect(t, Setup{Attributes: via.VIAttributes{Reliability: level}})
				for i := range n {
					OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[i], 100*i, 100)))
				}
				for i := range n + left {
					OK(t, x.VI.PostSend(x.Prepare(t, x.Send[i], 100*i, 100)))
				}
				sends := make(chan []error, 1)
				go func() {
					ctx, cancel := context.WithTimeout(t.Context(), Patience)
					defer cancel()
					var errs []error
					for range n + left {
						_, err := x.VI.SendWait(ctx)
						errs = append(errs, err)
					}
					sends <- errs
				}()
				for i := range n {
					d := Must(y.VI.RecvWait(Context(t)))(t)
					if d.Length() != 100 {
						t.Errorf("message %d of %d bytes", i, d.Length())
					}
				}
				OK(t, y.VI.Disconnect(Context(t)))
				var errs []error
				p.Until(t, "the sends to complete", func() bool {
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
						t.Errorf("message %d was taken, and its sender is told: %v", i, err)
					case i >= n:
						wantEnd(t, "a message that was not taken", err, via.ErrDisconnected)
					}
				}
				release(t, p, x, y)
			}
		}
	}
}

// wantEnd fails the test unless err, of a descriptor, says that the connection ended
// in the way of end, and in no other; zero is none of them.
func wantEnd(t T, what string, err error, end via.Code) {
	t.Helper()
	WantError(t, what, err, via.ErrDescriptor)
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
func release(t T, p *Pair, ends ...*End) {
	t.Helper()
	for _, e := range ends {
		OK(t, e.VI.Disconnect(Context(t)))
		for _, done := range []func() (*via.Descriptor, error){e.VI.SendDone, e.VI.RecvDone} {
			for {
				if _, err := p.Take(t, done); err == via.ErrQueueEmpty {
					break
				}
			}
		}
		OK(t, e.VI.Destroy(Context(t)))
		OK(t, e.Memory.Deregister(Context(t)))
	}
}

// testEndings checks what both ends are told of connections that end in different
// ways: in the error of every descriptor, in the event, and when somebody tries to
// go on.
func testEndings(t T, p *Pair) {
	for _, c := range []struct {
		name string
		// end has y end the connection; both ends have 2 receives.
		end func(t T, p *Pair, x, y *End)
		// mine is what y is told, zero if nothing, and theirs what x is told.
		mine, theirs via.Code
	}{
		{"disconnect", func(t T, p *Pair, x, y *End) {
			OK(t, y.VI.Disconnect(Context(t)))
		}, 0, via.ErrDisconnected},
		{"disconnect after messages", func(t T, p *Pair, x, y *End) {
			for i := range 2 {
				OK(t, y.VI.PostSend(y.Prepare(t, y.Send[i], 0, 10)))
			}
			p.MustTake(t, y.VI.SendDone)
			p.MustTake(t, y.VI.SendDone)
			OK(t, y.VI.Disconnect(Context(t)))
		}, 0, via.ErrDisconnected},
		{"disconnect that cuts a message off", func(t T, p *Pair, x, y *End) {
			for i := range 3 { // x has receives for two
				OK(t, y.VI.PostSend(y.Prepare(t, y.Send[i], 0, 10)))
			}
			OK(t, y.VI.Disconnect(Context(t)))
		}, 0, via.ErrConnectionBroken},
		{"memory of a send that is gone", func(t T, p *Pair, x, y *End) {
			m := Must(p.B.Alloc(Context(t), 64, via.MemoryAttributes{}))(t)
			y.Send[0].Prepare()
			OK(t, m.AddTo(y.Send[0], 0, 10))
			OK(t, m.Deregister(Context(t)))
			OK(t, y.VI.PostSend(y.Send[0]))
		}, via.ErrConnectionBroken, via.ErrConnectionBroken},
		{"receive too small", func(t T, p *Pair, x, y *End) {
			OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 1000)))
		}, via.ErrConnectionBroken, via.ErrConnectionBroken},
	} {
		subtest(t, c.name, func(t T) {
			x, y := p.Connect(t, Setup{})
			events := make(chan via.AsyncError, 64)
			for _, n := range []*via.NIC{p.A, p.B} {
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
					OK(t, e.VI.PostRecv(e.Prepare(t, e.Recv[i], 100*i, 100)))
				}
			}
			c.end(t, p, x, y)
			for end, want := range map[*End]via.Code{x: c.theirs, y: c.mine} {
				state := via.ErrorState
				if want == 0 {
					state = via.Idle
				}
				p.Until(t, "the end of the connection", func() bool {
					return Must(end.VI.Query(Context(t)))(t).State == state
				})
				for _, done := range []func() (*via.Descriptor, error){end.VI.RecvDone, end.VI.SendDone} {
					for {
						_, err := p.Take(t, done)
						if err == via.ErrQueueEmpty {
							break
						}
						if err != nil {
							wantEnd(t, "a descriptor", err, want)
						}
					}
				}
				if want == 0 {
					continue
				}
				p.Until(t, "the event", func() bool {
					select {
					case e := <-events:
						if e.VI != end.VI {
							events <- e // the other end's
							return false
						}
						wantOnlyEnd(t, "the event", e.Reason(), want)
						return true
					default:
						return false
					}
				})
				// Going on says it again.
				OK(t, end.VI.PostSend(end.Prepare(t, end.Send[0], 0, 10)))
				_, err := p.Take(t, end.VI.SendDone)
				wantEnd(t, "a send in the error state", err, want)
				_, err = end.VI.ConnectRequest(Context(t), via.Address{MAC: p.A.Query().Address}, nil)
				WantError(t, "connecting in the error state", err, via.ErrInvalidState)
				wantOnlyEnd(t, "connecting in the error state", err, want)
				// What was flushed before DISCONNECT keeps its reason.
				OK(t, end.VI.PostRecv(end.Prepare(t, end.Recv[0], 0, 10)))
				OK(t, end.VI.Disconnect(Context(t)))
				_, err = p.Take(t, end.VI.RecvDone)
				wantEnd(t, "a receive taken back after a disconnect", err, want)
			}
			// The next connection has an end of its own.
			OK(t, ConnectVIs(Context(t), x.VI, y.VI, t.Name()))
			OK(t, x.VI.PostRecv(x.Prepare(t, x.Recv[0], 0, 10)))
			OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 10)))
			OK(t, x.VI.Disconnect(Context(t)))
			_, err := p.Take(t, x.VI.RecvDone)
			wantEnd(t, "a receive of the end that disconnects", err, 0)
			_, err = p.Take(t, y.VI.RecvDone)
			wantEnd(t, "a receive of the other end", err, via.ErrDisconnected)
			release(t, p, x, y)
		})
	}
}
