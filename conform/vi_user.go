package conform

import (
	"github.com/trapeze-nic/trapeze/via"
)

// testUser finds the application's words again in descriptors and in completions of a CQ.
func testUser(w *World) {
	const n = 10
	ctx := Context(w)
	acq, bcq := Must(w.A.CreateCQ(ctx, 256))(w), Must(w.B.CreateCQ(ctx, 256))(w)
	x := Must(Equip(ctx, w.A, Must(w.A.CreateVI(ctx, via.VIAttributes{}, acq, acq))(w), 4096, 1))(w)
	y := Must(Equip(ctx, w.B, Must(w.B.CreateVI(ctx, via.VIAttributes{}, bcq, bcq))(w), 4096, 1))(w)
	OK(w, ConnectVIs(ctx, x.VI, y.VI, w.Name()))
	for round := range 3 {
		for i := range n {
			r, s := y.Prepare(w, y.Recv[i], 0, 8), x.Prepare(w, x.Send[i], 0, 8)
			r.User().Word, s.User().Word = uint64(1000*round+i), 1<<63|uint64(i)
			OK(w, y.VI.PostRecv(r))
			OK(w, x.VI.PostSend(s))
		}
		for i := range n {
			for _, c := range []struct {
				e    *End
				cq   *via.CQ
				done func() (*via.Descriptor, error)
				want uint64
			}{{y, bcq, y.VI.RecvDone, uint64(1000*round + i)}, {x, acq, x.VI.SendDone, 1<<63 | uint64(i)}} {
				var got via.Completion
				w.Until("a completion", func() (done bool) {
					var err error
					got, err = c.cq.Done()
					return err == nil
				})
				if d := Must(c.done())(w); got.User != c.want || d.User().Word != c.want {
					w.Fatalf("words %#x and %#x, want %#x", got.User, d.User().Word, c.want)
				}
			}
		}
	}
}

// testUnsignaled sends with and without completions.
func testUnsignaled(w *World) {
	const depth, every = 8, 4
	ctx := Context(w)
	attributes := via.VIAttributes{SendDepth: depth, RecvDepth: depth}
	for _, withCQ := range []bool{false, true} {
		var cq *via.CQ
		if withCQ {
			cq = Must(w.A.CreateCQ(ctx, 2*depth))(w)
		}
		x := Must(Equip(ctx, w.A, Must(w.A.CreateVI(ctx, attributes, cq, cq))(w), 4096, 1))(w)
		y := NewEnd(w, w.B, Setup{Attributes: attributes})
		OK(w, ConnectVIs(ctx, x.VI, y.VI, w.Name()))
		sent := func(i int) *via.Descriptor {
			OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[i%depth], 0, 8)))
			d := x.Prepare(w, x.Send[i%depth], 0, 8)
			d.User().Word, d.User().Unsignaled = uint64(i), i%every != every-1
			return d
		}
		// One completion for each of every sends, whether a CQ says so or not.
		for i := range 10 * depth {
			OK(w, x.VI.PostSend(sent(i)))
			w.MustTake(y.VI.RecvDone)
			if i%every != every-1 {
				continue
			}
			if withCQ {
				w.Until("a completion", func() bool {
					c, err := cq.Done()
					if err == nil && c.User != uint64(i) {
						w.Fatalf("completion of send %d, want %d", c.User, i)
					}
					return err == nil
				})
			}
			if d := w.MustTake(x.VI.SendDone); d.User().Word != uint64(i) {
				w.Fatalf("send %d came back, want %d", d.User().Word, i)
			}
			if d, err := x.VI.SendDone(); d != nil || err != via.ErrQueueEmpty {
				w.Fatalf("nothing is posted, and SendDone said %v", err)
			}
		}
		// Without a call of SendDone: the queue is never full for long. With one descriptor more than it
		// holds, the next is the application's.
		spare := Must(x.VI.NewDescriptors(ctx, depth+1, 0))(w)
		for i := range 5 * depth {
			OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[i%depth], 0, 8)))
			d := spare[i%(depth+1)]
			d.Prepare()
			d.User().Unsignaled = true
			w.Until("room", func() bool {
				err := x.VI.PostSend(d)
				if err != nil && err != via.ErrQueueFull {
					w.Fatal(err)
				}
				return err == nil
			})
			w.MustTake(y.VI.RecvDone)
		}
		w.Until("the queue to be empty", func() bool {
			d, err := x.VI.SendDone()
			if d != nil {
				w.Fatal("an unsignalled send came back")
			}
			return err == via.ErrQueueEmpty
		})
		if cq != nil {
			if _, err := cq.Done(); err != via.ErrNotDone {
				w.Errorf("a completion of unsignalled sends: %v", err)
			}
		}
		if s := Must(x.VI.Query(ctx))(w); s.SendQueued != 0 {
			w.Errorf("%d sends are queued", s.SendQueued)
		}
		// In batches, the signalled ones alone.
		batch := make([]*via.Descriptor, depth)
		for i := range batch {
			batch[i] = sent(i)
		}
		if n, err := x.VI.PostSendBatch(batch); n != depth || err != nil {
			w.Fatalf("%d posted, %v", n, err)
		}
		got := make([]*via.Descriptor, depth)
		for total := 0; total < depth/every; {
			n, err := x.VI.SendDoneBatch(got)
			if err != nil && err != via.ErrNotDone {
				w.Fatal(err)
			}
			for _, d := range got[:n] {
				if total++; d.User().Word != uint64(total*every-1) {
					w.Fatalf("send %d came back as number %d", d.User().Word, total)
				}
			}
			w.A.Poll()
			w.B.Poll()
		}
		for range depth {
			w.MustTake(y.VI.RecvDone)
		}
		// An error is never kept quiet.
		bad := x.Prepare(w, x.Send[0], 0, 8)
		bad.User().Unsignaled = true
		bad.Control().Length = 9
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 8)))
		OK(w, x.VI.PostSend(bad))
		d, err := w.Take(x.VI.SendDone)
		if wantStatus(w, "an unsignalled send that fails", d, err, via.StatusLengthError); d != bad {
			w.Error("another descriptor came back")
		}
		// A receive is always reported.
		OK(w, y.VI.Disconnect(ctx))
		w.Until("the receives", func() bool { _, err := y.VI.RecvDone(); return err == via.ErrQueueEmpty })
		OK(w, x.VI.Disconnect(ctx))
		OK(w, ConnectVIs(ctx, x.VI, y.VI, w.Name()))
		r := y.Prepare(w, y.Recv[1], 0, 8)
		r.User().Unsignaled = true
		OK(w, y.VI.PostRecv(r))
		OK(w, x.VI.PostSend(x.Prepare(w, x.Send[1], 0, 8)))
		if d := w.MustTake(y.VI.RecvDone); d != r {
			w.Error("another receive came back")
		}
	}
}
