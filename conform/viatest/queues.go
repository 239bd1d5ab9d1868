package viatest

import (
	"github.com/trapeze-nic/trapeze/via"
)

func testQueueFull(t T, p *Pair) {
	x, y := p.Connect(t, Setup{Attributes: via.VIAttributes{SendDepth: 4, RecvDepth: 4}})
	for _, done := range []func() (*via.Descriptor, error){x.VI.SendDone, x.VI.RecvDone} {
		d, err := done()
		WantError(t, "done on an empty queue", err, via.ErrQueueEmpty, via.ErrDescriptor)
		if d != nil {
			t.Error("a descriptor from an empty queue")
		}
	}
	extra := Must(y.VI.NewDescriptors(Context(t), 1, 1))(t)[0]
	all := append(y.Recv[:len(y.Recv):len(y.Recv)], extra)
	posted, err := y.VI.PostRecvBatch(all)
	WantError(t, "batch too large", err, via.ErrQueueFull, via.ErrResource)
	if posted != len(y.Recv) {
		t.Errorf("%d posted, the queue holds %d", posted, len(y.Recv))
	}
	err = y.VI.PostRecv(extra)
	WantError(t, "post on a full queue", err, via.ErrQueueFull, via.ErrResource)
	_, err = y.VI.RecvDone()
	WantError(t, "nothing completed", err, via.ErrNotDone)

	// A full queue works, and has room again afterwards.
	OK(t, x.VI.PostSend(x.Send[0]))
	p.MustTake(t, x.VI.SendDone)
	if d := p.MustTake(t, y.VI.RecvDone); d != y.Recv[0] {
		t.Error("wrong descriptor completed")
	}
	OK(t, y.VI.PostRecv(extra))
	if s := Must(y.VI.Query(Context(t)))(t); s.RecvQueued != len(y.Recv) || s.SendQueued != 0 {
		t.Errorf("%d receives and %d sends queued, want %d and 0", s.RecvQueued, s.SendQueued, len(y.Recv))
	}
}

func testQueuesByState(t T, p *Pair) {
	x, y := NewEnd(t, p.A, Setup{}), NewEnd(t, p.B, Setup{})
	// Idle: a receive is held, a send is flushed.
	OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 100)))
	OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 10)))
	d, err := p.Take(t, x.VI.SendDone)
	wantStatus(t, "send on an idle VI", d, err, via.StatusFlushed)
	if _, err := y.VI.RecvDone(); err != via.ErrNotDone {
		t.Errorf("receive on an idle VI: %v", err)
	}
	OK(t, ConnectVIs(Context(t), x.VI, y.VI, t.Name()))
	wantState(t, x.VI, via.Connected)
	wantState(t, y.VI, via.Connected)
	OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 10)))
	if d := p.MustTake(t, y.VI.RecvDone); d.Length() != 10 {
		t.Errorf("%d bytes received, want 10", d.Length())
	}
	p.MustTake(t, x.VI.SendDone)

	// Error: everything is flushed.
	OK(t, x.VI.Disconnect(Context(t)))
	p.Until(t, "the other end to notice", func() bool {
		return Must(y.VI.Query(Context(t)))(t).State == via.ErrorState
	})
	OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 10)))
	d, err = p.Take(t, y.VI.RecvDone)
	wantStatus(t, "receive in the error state", d, err, via.StatusFlushed)
	OK(t, y.VI.PostSend(y.Prepare(t, y.Send[0], 0, 10)))
	d, err = p.Take(t, y.VI.SendDone)
	wantStatus(t, "send in the error state", d, err, via.StatusFlushed)
	OK(t, y.VI.Disconnect(Context(t)))
	wantState(t, y.VI, via.Idle)
}

// testDisconnect checks that both ends get all they posted back, in order, and
// that the end that did not ask is told. Sends are posted without receives for
// them, or receives without sends, so that nothing can complete before.
func testDisconnect(t T, p *Pair) {
	for _, q := range []via.Queue{via.SendQueue, via.RecvQueue} {
		subtest(t, q.String(), func(t T) {
			lost := make(chan via.AsyncError, 64)
			p.B.OnError(func(e via.AsyncError) {
				select {
				case lost <- e:
				default: // more than the test waits for
				}
			})
			x, y := p.Connect(t, Setup{})
			for i := range 8 {
				for _, e := range []*End{x, y} {
					if q == via.SendQueue {
						OK(t, e.VI.PostSend(e.Prepare(t, e.Send[i], 0, 10)))
					} else {
						OK(t, e.VI.PostRecv(e.Prepare(t, e.Recv[i], 0, 10)))
					}
				}
			}
			OK(t, x.VI.Disconnect(Context(t)))
			wantState(t, x.VI, via.Idle)
			for _, e := range []*End{x, y} {
				for i := range 8 {
					done, posted := e.VI.SendDone, e.Send
					if q == via.RecvQueue {
						done, posted = e.VI.RecvDone, e.Recv
					}
					d, err := p.Take(t, done)
					wantStatus(t, "flushed "+q.String(), d, err, via.StatusFlushed)
					if d != posted[i] {
						t.Fatalf("descriptor %d flushed out of order", i)
					}
				}
			}
			wantState(t, y.VI, via.ErrorState)
			p.Until(t, "connection lost", func() bool {
				select {
				case e := <-lost:
					return e.Code == via.AsyncConnectionLost && e.VI == y.VI && e.NIC == p.B
				default:
					return false
				}
			})
		})
	}
}

func testReconnect(t T, p *Pair) {
	x, y := p.Connect(t, Setup{})
	for i := range 5 {
		exchange(t, p, x, y, 1000, uint64(i))
		OK(t, x.VI.Disconnect(Context(t)))
		OK(t, y.VI.Disconnect(Context(t)))
		wantState(t, x.VI, via.Idle)
		wantState(t, y.VI, via.Idle)
		OK(t, ConnectVIs(Context(t), x.VI, y.VI, t.Name()))
		// The roles change with each round.
		x, y = y, x
	}
	exchange(t, p, x, y, 1000, 9)
}
