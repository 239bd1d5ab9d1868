package viatest

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// testCQ ties the queues of several VIs to one CQ on each NIC, and takes every
// completion through it.
func testCQ(t T, p *Pair) {
	const vis, messages = 3, 40
	ctx := Context(t)
	a := via.VIAttributes{SendDepth: 16, RecvDepth: 16}
	acq := Must(p.A.CreateCQ(ctx, 2*16*vis))(t)
	bcq := Must(p.B.CreateCQ(ctx, 2*16*vis))(t)
	if acq.Entries() < 2*16*vis {
		t.Errorf("a CQ of %d entries, %d asked for", acq.Entries(), 2*16*vis)
	}
	_, err := acq.Done()
	WantError(t, "done on an empty CQ", err, via.ErrNotDone)

	type link struct {
		from, to       *via.VI
		send, recv     *via.Descriptor
		sent, received int
	}
	links := map[*via.VI]*link{}
	for range vis {
		l := &link{from: Must(p.A.CreateVI(ctx, a, acq, acq))(t), to: Must(p.B.CreateVI(ctx, a, bcq, bcq))(t)}
		OK(t, ConnectVIs(ctx, l.from, l.to, t.Name()))
		l.send = Must(l.from.NewDescriptors(ctx, 1, 0))(t)[0]
		l.recv = Must(l.to.NewDescriptors(ctx, 1, 0))(t)[0]
		links[l.from], links[l.to] = l, l
		OK(t, l.to.PostRecv(l.recv))
		OK(t, l.from.PostSend(l.send))
	}
	// Each completion of a queue is followed by the next post on that queue, so
	// that the CQs wrap.
	total := 0
	next := func(c via.Completion) {
		l := links[c.VI]
		if l == nil {
			t.Fatalf("completion of a VI that nobody made: %+v", c)
		}
		switch {
		case c.Queue == via.SendQueue && c.VI == l.from:
			d := Must(l.from.SendDone())(t)
			if l.sent++; l.sent < messages {
				d.Rearm()
				OK(t, l.from.PostSend(d))
			}
		case c.Queue == via.RecvQueue && c.VI == l.to:
			d := Must(l.to.RecvDone())(t)
			if l.received++; l.received < messages {
				d.Rearm()
				OK(t, l.to.PostRecv(d))
			}
		default:
			t.Fatalf("completion of the wrong queue: %v", c.Queue)
		}
		total++
	}
	p.Until(t, "all completions", func() bool {
		for _, cq := range []*via.CQ{acq, bcq} {
			if c, err := cq.Done(); err == nil {
				next(c)
			} else if err != via.ErrNotDone {
				t.Fatal(err)
			}
		}
		return total == 2*vis*messages
	})

	short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	_, err = bcq.Wait(short)
	WantError(t, "wait on an empty CQ", err, via.ErrTimeout, context.DeadlineExceeded)
	canceled, cancel := context.WithCancel(t.Context())
	time.AfterFunc(5*time.Millisecond, cancel)
	_, err = bcq.Wait(canceled)
	WantError(t, "cancelled wait for a CQ", err, via.ErrCanceled, context.Canceled)
	for vi, l := range links {
		if vi != l.to {
			continue
		}
		l.recv.Rearm()
		OK(t, l.to.PostRecv(l.recv))
		time.AfterFunc(10*time.Millisecond, func() {
			l.send.Rearm()
			if err := l.from.PostSend(l.send); err != nil {
				t.Error(err)
			}
		})
		if c := Must(bcq.Wait(ctx))(t); c.VI != l.to || c.Queue != via.RecvQueue {
			t.Errorf("completion %+v", c)
		}
		Must(l.to.RecvDone())(t)
	}
}

// testCQNotRead takes descriptors back with SendDone and RecvDone alone, flushed ones
// among them. Their completions are in nobody's way: not of later posts, not of
// later completions, not of the next VI.
func testCQNotRead(t T, p *Pair) {
	const depth = 4
	ctx := Context(t)
	a := via.VIAttributes{SendDepth: depth, RecvDepth: depth}
	cq := Must(p.B.CreateCQ(ctx, 2*depth))(t)
	x := NewEnd(t, p.A, Setup{Attributes: a})
	for range 2 { // VIs with the same CQ, one after the other
		y := Must(Equip(ctx, Must(p.B.CreateVI(ctx, a, cq, cq))(t), 4096, 1))(t)
		for range 3 {
			OK(t, ConnectVIs(ctx, x.VI, y.VI, t.Name()))
			for i := range 3 * depth {
				d, e := y.Send[i%depth], x.Recv[0]
				OK(t, x.VI.PostRecv(x.Prepare(t, e, 0, 64)))
				d.Rearm()
				p.Until(t, "room to send", func() bool {
					err := y.VI.PostSend(d)
					if err != via.ErrQueueFull {
						OK(t, err)
					}
					return err == nil
				})
				if p.MustTake(t, y.VI.SendDone) != d || p.MustTake(t, x.VI.RecvDone) != e {
					t.Fatal("not the descriptor that was posted")
				}
			}
			for _, d := range y.Recv {
				d.Rearm()
				OK(t, y.VI.PostRecv(d))
			}
			OK(t, y.VI.Disconnect(ctx))
			for _, d := range y.Recv {
				got, err := p.Take(t, y.VI.RecvDone)
				wantStatus(t, "flushed receive", got, err, via.StatusFlushed)
				if got != d {
					t.Fatal("flushed out of order")
				}
			}
			OK(t, x.VI.Disconnect(ctx))
			if c, err := cq.Done(); err != via.ErrNotDone {
				t.Errorf("everything was taken back, but the CQ says %+v, %v", c, err)
			}
		}
		// The next completion is that of the next message.
		OK(t, ConnectVIs(ctx, x.VI, y.VI, t.Name()))
		OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 64)))
		OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 8)))
		var c via.Completion
		p.Until(t, "the completion", func() bool {
			var err error
			if c, err = cq.Done(); err != via.ErrNotDone {
				OK(t, err)
			}
			return err == nil
		})
		if c.VI != y.VI || c.Queue != via.RecvQueue {
			t.Errorf("completion %+v", c)
		}
		if d, err := y.VI.RecvDone(); d != y.Recv[0] || err != nil {
			t.Errorf("the descriptor that the CQ said has completed: %v", err)
		}
		p.MustTake(t, x.VI.SendDone)
		for _, d := range y.Recv {
			d.Rearm()
			OK(t, y.VI.PostRecv(d))
		}
		OK(t, errors.Join(x.VI.Disconnect(ctx), y.VI.Disconnect(ctx)))
		for range y.Recv {
			_, _ = p.Take(t, y.VI.RecvDone)
		}
		OK(t, y.VI.Destroy(ctx))
	}
}

func testCQTooSmall(t T, p *Pair) {
	ctx := Context(t)
	cq := Must(p.A.CreateCQ(ctx, 8))(t)
	n := cq.Entries()
	_, err := p.A.CreateVI(ctx, via.VIAttributes{SendDepth: n, RecvDepth: n}, cq, cq)
	WantError(t, "both queues", err, via.ErrResource)
	_, err = p.A.CreateVI(ctx, via.VIAttributes{SendDepth: 2 * n, RecvDepth: n}, cq, nil)
	WantError(t, "one queue", err, via.ErrResource)
	vi := Must(p.A.CreateVI(ctx, via.VIAttributes{SendDepth: n, RecvDepth: n}, cq, nil))(t)
	_, err = p.A.CreateVI(ctx, via.VIAttributes{SendDepth: n, RecvDepth: n}, nil, cq)
	WantError(t, "second VI", err, via.ErrResource)
	OK(t, vi.Destroy(ctx))
	vi = Must(p.A.CreateVI(ctx, via.VIAttributes{SendDepth: n, RecvDepth: n}, nil, cq))(t)
	OK(t, vi.Destroy(ctx))
	OK(t, cq.Destroy(ctx))
	for _, entries := range []int{-1, 0, p.A.Query().MaxCQEntries + 1} {
		_, err := p.A.CreateCQ(ctx, entries)
		WantError(t, "CQ of a bad size", err, via.ErrInvalidParameter)
	}
}

func testCQInUse(t T, p *Pair) {
	ctx := Context(t)
	send, recv := Must(p.A.CreateCQ(ctx, 64))(t), Must(p.A.CreateCQ(ctx, 64))(t)
	vi := Must(p.A.CreateVI(ctx, via.VIAttributes{SendDepth: 8, RecvDepth: 8}, send, recv))(t)
	WantError(t, "destroy the send CQ", send.Destroy(ctx), via.ErrResource)
	WantError(t, "destroy the receive CQ", recv.Destroy(ctx), via.ErrResource)
	_, err := vi.SendWait(ctx)
	WantError(t, "wait for a send", err, via.ErrInvalidState)
	_, err = vi.RecvWait(ctx)
	WantError(t, "wait for a receive", err, via.ErrInvalidState)
	OK(t, vi.Destroy(ctx))
	OK(t, send.Destroy(ctx))
	OK(t, recv.Destroy(ctx))
	WantError(t, "destroy twice", send.Destroy(ctx), via.ErrClosed, via.ErrInvalidParameter)
	_, err = p.A.CreateVI(ctx, via.VIAttributes{}, send, nil)
	WantError(t, "VI with a destroyed CQ", err, via.ErrInvalidParameter)
}
