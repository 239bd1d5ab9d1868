package conform

import (
	"github.com/trapeze-nic/trapeze/via"
)

func testQueueFull(w *World) {
	x, y := w.Connect(Setup{Attributes: via.VIAttributes{SendDepth: 4, RecvDepth: 4}})
	for _, done := range []func() (*via.Descriptor, error){x.VI.SendDone, x.VI.RecvDone} {
		d, err := done()
		wantError(w, "done on an empty queue", err, via.ErrQueueEmpty, via.ErrDescriptor)
		if d != nil {
			w.Error("a descriptor from an empty queue")
		}
	}
	extra := Must(y.VI.NewDescriptors(Context(w), 1, 1))(w)[0]
	all := append(y.Recv[:len(y.Recv):len(y.Recv)], extra)
	posted, err := y.VI.PostRecvBatch(all)
	wantError(w, "batch too large", err, via.ErrQueueFull, via.ErrResource)
	if posted != len(y.Recv) {
		w.Errorf("%d posted, the queue holds %d", posted, len(y.Recv))
	}
	err = y.VI.PostRecv(extra)
	wantError(w, "post on a full queue", err, via.ErrQueueFull, via.ErrResource)
	_, err = y.VI.RecvDone()
	wantError(w, "nothing completed", err, via.ErrNotDone)

	// A full queue works, and has room again afterwards.
	OK(w, x.VI.PostSend(x.Send[0]))
	w.MustTake(x.VI.SendDone)
	if d := w.MustTake(y.VI.RecvDone); d != y.Recv[0] {
		w.Error("wrong descriptor completed")
	}
	OK(w, y.VI.PostRecv(extra))
	if s := Must(y.VI.Query(Context(w)))(w); s.RecvQueued != len(y.Recv) || s.SendQueued != 0 {
		w.Errorf("%d receives and %d sends queued, want %d and 0", s.RecvQueued, s.SendQueued, len(y.Recv))
	}
}

func testQueuesByState(w *World) {
	x, y := NewEnd(w, w.A, Setup{}), NewEnd(w, w.B, Setup{})
	// Idle: a receive is held, a send is flushed.
	OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 100)))
	OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 10)))
	d, err := w.Take(x.VI.SendDone)
	wantStatus(w, "send on an idle VI", d, err, via.StatusFlushed)
	if _, err := y.VI.RecvDone(); err != via.ErrNotDone {
		w.Errorf("receive on an idle VI: %v", err)
	}
	OK(w, ConnectVIs(Context(w), x.VI, y.VI, w.Name()))
	wantState(w, x.VI, via.Connected)
	wantState(w, y.VI, via.Connected)
	OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 10)))
	if d := w.MustTake(y.VI.RecvDone); d.Length() != 10 {
		w.Errorf("%d bytes received, want 10", d.Length())
	}
	w.MustTake(x.VI.SendDone)

	// Error: everything is flushed.
	OK(w, x.VI.Disconnect(Context(w)))
	w.Until("the other end to notice", func() bool {
		return Must(y.VI.Query(Context(w)))(w).State == via.ErrorState
	})
	OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 10)))
	d, err = w.Take(y.VI.RecvDone)
	wantStatus(w, "receive in the error state", d, err, via.StatusFlushed)
	OK(w, y.VI.PostSend(y.Prepare(w, y.Send[0], 0, 10)))
	d, err = w.Take(y.VI.SendDone)
	wantStatus(w, "send in the error state", d, err, via.StatusFlushed)
	OK(w, y.VI.Disconnect(Context(w)))
	wantState(w, y.VI, via.Idle)
}

// testDisconnect checks that both ends get all they posted back, in order, and
// that the end that did not ask is told. Sends are posted without receives for
// them, or receives without sends, so that nothing can complete before.
func testDisconnect(w *World) {
	for _, q := range []via.Queue{via.SendQueue, via.RecvQueue} {
		w.part(q.String(), func(w *World) {
			lost := make(chan via.AsyncError, 64)
			w.B.OnError(func(e via.AsyncError) {
				select {
				case lost <- e:
				default: // more than the test waits for
				}
			})
			x, y := w.Connect(Setup{})
			for i := range 8 {
				for _, e := range []*End{x, y} {
					if q == via.SendQueue {
						OK(w, e.VI.PostSend(e.Prepare(w, e.Send[i], 0, 10)))
					} else {
						OK(w, e.VI.PostRecv(e.Prepare(w, e.Recv[i], 0, 10)))
					}
				}
			}
			OK(w, x.VI.Disconnect(Context(w)))
			wantState(w, x.VI, via.Idle)
			for _, e := range []*End{x, y} {
				for i := range 8 {
					done, posted := e.VI.SendDone, e.Send
					if q == via.RecvQueue {
						done, posted = e.VI.RecvDone, e.Recv
					}
					d, err := w.Take(done)
					wantStatus(w, "flushed "+q.String(), d, err, via.StatusFlushed)
					if d != posted[i] {
						w.Fatalf("descriptor %d flushed out of order", i)
					}
				}
			}
			wantState(w, y.VI, via.ErrorState)
			w.Until("connection lost", func() bool {
				select {
				case e := <-lost:
					return e.Code == via.AsyncConnectionLost && e.VI == y.VI && e.NIC == w.B
				default:
					return false
				}
			})
		})
	}
}

func testReconnect(w *World) {
	x, y := w.Connect(Setup{})
	for i := range 5 {
		exchange(w, x, y, 1000, uint64(i))
		OK(w, x.VI.Disconnect(Context(w)))
		OK(w, y.VI.Disconnect(Context(w)))
		wantState(w, x.VI, via.Idle)
		wantState(w, y.VI, via.Idle)
		OK(w, ConnectVIs(Context(w), x.VI, y.VI, w.Name()))
		// The roles change with each round.
		x, y = y, x
	}
	exchange(w, x, y, 1000, 9)
}
