package conform

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// testCQ ties the queues of several VIs to one CQ on each NIC, and takes every
// completion through it.
func testCQ(w *World) {
	const vis, messages = 3, 40
	ctx := Context(w)
	a := via.VIAttributes{SendDepth: 16, RecvDepth: 16}
	acq := Must(w.A.CreateCQ(ctx, 2*16*vis))(w)
	bcq := Must(w.B.CreateCQ(ctx, 2*16*vis))(w)
	if acq.Entries() < 2*16*vis {
		w.Errorf("a CQ of %d entries, %d asked for", acq.Entries(), 2*16*vis)
	}
	_, err := acq.Done()
	wantError(w, "done on an empty CQ", err, via.ErrNotDone)

	type link struct {
		from, to       *via.VI
		send, recv     *via.Descriptor
		sent, received int
	}
	links := map[*via.VI]*link{}
	for range vis {
		l := &link{from: Must(w.A.CreateVI(ctx, a, acq, acq))(w), to: Must(w.B.CreateVI(ctx, a, bcq, bcq))(w)}
		OK(w, ConnectVIs(ctx, l.from, l.to, w.Name()))
		l.send = Must(l.from.NewDescriptors(ctx, 1, 0))(w)[0]
		l.recv = Must(l.to.NewDescriptors(ctx, 1, 0))(w)[0]
		links[l.from], links[l.to] = l, l
		OK(w, l.to.PostRecv(l.recv))
		OK(w, l.from.PostSend(l.send))
	}
	// Each completion of a queue is followed by the next post on that queue, so
	// that the CQs wrap.
	total := 0
	next := func(c via.Completion) {
		l := links[c.VI]
		if l == nil {
			w.Fatalf("completion of a VI that was not made: %+v", c)
		}
		switch {
		case c.Queue == via.SendQueue && c.VI == l.from:
			d := Must(l.from.SendDone())(w)
			if l.sent++; l.sent < messages {
				d.Rearm()
				OK(w, l.from.PostSend(d))
			}
		case c.Queue == via.RecvQueue && c.VI == l.to:
			d := Must(l.to.RecvDone())(w)
			if l.received++; l.received < messages {
				d.Rearm()
				OK(w, l.to.PostRecv(d))
			}
		default:
			w.Fatalf("completion of the wrong queue: %v", c.Queue)
		}
		total++
	}
	w.Until("all completions", func() bool {
		for _, cq := range []*via.CQ{acq, bcq} {
			if c, err := cq.Done(); err == nil {
				next(c)
			} else if err != via.ErrNotDone {
				w.Fatal(err)
			}
		}
		return total == 2*vis*messages
	})

	short, cancel := context.WithTimeout(w.Context(), 5*time.Millisecond)
	defer cancel()
	_, err = bcq.Wait(short)
	wantError(w, "wait on an empty CQ", err, via.ErrTimeout, context.DeadlineExceeded)
	canceled, cancel := context.WithCancel(w.Context())
	time.AfterFunc(5*time.Millisecond, cancel)
	_, err = bcq.Wait(canceled)
	wantError(w, "cancelled wait for a CQ", err, via.ErrCanceled, context.Canceled)
	for vi, l := range links {
		if vi != l.to {
			continue
		}
		l.recv.Rearm()
		OK(w, l.to.PostRecv(l.recv))
		time.AfterFunc(10*time.Millisecond, func() {
			l.send.Rearm()
			if err := l.from.PostSend(l.send); err != nil {
				w.Error(err)
			}
		})
		if c := Must(bcq.Wait(ctx))(w); c.VI != l.to || c.Queue != via.RecvQueue {
			w.Errorf("completion %+v", c)
		}
		Must(l.to.RecvDone())(w)
	}
}

// testCQNotRead takes descriptors back with SendDone and RecvDone alone, flushed ones among them.
// Their completions are in the way neither of later posts, nor of later completions, nor of the
// next VI.
func testCQNotRead(w *World) {
	const depth = 4
	ctx := Context(w)
	a := via.VIAttributes{SendDepth: depth, RecvDepth: depth}
	cq := Must(w.B.CreateCQ(ctx, 2*depth))(w)
	x := NewEnd(w, w.A, Setup{Attributes: a})
	for range 2 { // VIs with the same CQ, one after the other
		y := Must(Equip(ctx, w.B, Must(w.B.CreateVI(ctx, a, cq, cq))(w), 4096, 1))(w)
		for range 3 {
			OK(w, ConnectVIs(ctx, x.VI, y.VI, w.Name()))
			for i := range 3 * depth {
				d, e := y.Send[i%depth], x.Recv[0]
				OK(w, x.VI.PostRecv(x.Prepare(w, e, 0, 64)))
				d.Rearm()
				w.Until("room to send", func() bool {
					err := y.VI.PostSend(d)
					if err != via.ErrQueueFull {
						OK(w, err)
					}
					return err == nil
				})
				if w.MustTake(y.VI.SendDone) != d || w.MustTake(x.VI.RecvDone) != e {
					w.Fatal("not the descriptor that was posted")
				}
			}
			for _, d := range y.Recv {
				d.Rearm()
				OK(w, y.VI.PostRecv(d))
			}
			OK(w, y.VI.Disconnect(ctx))
			for _, d := range y.Recv {
				got, err := w.Take(y.VI.RecvDone)
				wantStatus(w, "flushed receive", got, err, via.StatusFlushed)
				if got != d {
					w.Fatal("flushed out of order")
				}
			}
			OK(w, x.VI.Disconnect(ctx))
			if c, err := cq.Done(); err != via.ErrNotDone {
				w.Errorf("everything was taken back, but the CQ says %+v, %v", c, err)
			}
		}
		// The next completion is that of the next message.
		OK(w, ConnectVIs(ctx, x.VI, y.VI, w.Name()))
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 64)))
		OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 8)))
		var c via.Completion
		w.Until("the completion", func() bool {
			var err error
			if c, err = cq.Done(); err != via.ErrNotDone {
				OK(w, err)
			}
			return err == nil
		})
		if c.VI != y.VI || c.Queue != via.RecvQueue {
			w.Errorf("completion %+v", c)
		}
		if d, err := y.VI.RecvDone(); d != y.Recv[0] || err != nil {
			w.Errorf("the descriptor that the CQ said has completed: %v", err)
		}
		w.MustTake(x.VI.SendDone)
		for _, d := range y.Recv {
			d.Rearm()
			OK(w, y.VI.PostRecv(d))
		}
		OK(w, errors.Join(x.VI.Disconnect(ctx), y.VI.Disconnect(ctx)))
		for range y.Recv {
			_, _ = w.Take(y.VI.RecvDone)
		}
		OK(w, y.VI.Close(ctx))
	}
}

func testCQTooSmall(w *World) {
	ctx := Context(w)
	cq := Must(w.A.CreateCQ(ctx, 8))(w)
	n := cq.Entries()
	_, err := w.A.CreateVI(ctx, via.VIAttributes{SendDepth: n, RecvDepth: n}, cq, cq)
	wantError(w, "both queues", err, via.ErrResource)
	_, err = w.A.CreateVI(ctx, via.VIAttributes{SendDepth: 2 * n, RecvDepth: n}, cq, nil)
	wantError(w, "one queue", err, via.ErrResource)
	vi := Must(w.A.CreateVI(ctx, via.VIAttributes{SendDepth: n, RecvDepth: n}, cq, nil))(w)
	_, err = w.A.CreateVI(ctx, via.VIAttributes{SendDepth: n, RecvDepth: n}, nil, cq)
	wantError(w, "second VI", err, via.ErrResource)
	OK(w, vi.Close(ctx))
	vi = Must(w.A.CreateVI(ctx, via.VIAttributes{SendDepth: n, RecvDepth: n}, nil, cq))(w)
	OK(w, vi.Close(ctx))
	OK(w, cq.Close(ctx))
	for _, entries := range []int{-1, 0, w.A.Query().MaxCQEntries + 1} {
		_, err := w.A.CreateCQ(ctx, entries)
		wantError(w, "CQ of a bad size", err, via.ErrInvalidParameter)
	}
}

func testCQInUse(w *World) {
	ctx := Context(w)
	send, recv := Must(w.A.CreateCQ(ctx, 64))(w), Must(w.A.CreateCQ(ctx, 64))(w)
	vi := Must(w.A.CreateVI(ctx, via.VIAttributes{SendDepth: 8, RecvDepth: 8}, send, recv))(w)
	wantError(w, "destroy the send CQ", send.Close(ctx), via.ErrResource)
	wantError(w, "destroy the receive CQ", recv.Close(ctx), via.ErrResource)
	_, err := vi.SendWait(ctx)
	wantError(w, "wait for a send", err, via.ErrInvalidState)
	_, err = vi.RecvWait(ctx)
	wantError(w, "wait for a receive", err, via.ErrInvalidState)
	OK(w, vi.Close(ctx))
	OK(w, send.Close(ctx))
	OK(w, recv.Close(ctx))
	OK(w, send.Close(ctx)) // again
	_, err = w.A.CreateVI(ctx, via.VIAttributes{}, send, nil)
	wantError(w, "VI with a destroyed CQ", err, via.ErrInvalidParameter)
}
