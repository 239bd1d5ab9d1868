package viatest

import (
	"github.com/trapeze-nic/trapeze/via"
)

// testUser finds the application's words again in descriptors and in completions of a CQ.
func testUser(t T, p *Pair) {
	const n = 10
	ctx := Context(t)
	acq, bcq := Must(p.A.CreateCQ(ctx, 256))(t), Must(p.B.CreateCQ(ctx, 256))(t)
	x := Must(Equip(ctx, Must(p.A.CreateVI(ctx, via.VIAttributes{}, acq, acq))(t), 4096, 1))(t)
	y := Must(Equip(ctx, Must(p.B.CreateVI(ctx, via.VIAttributes{}, bcq, bcq))(t), 4096, 1))(t)
	OK(t, ConnectVIs(ctx, x.VI, y.VI, t.Name()))
	for round := range 3 {
		for i := range n {
			r, s := y.Prepare(t, y.Recv[i], 0, 8), x.Prepare(t, x.Send[i], 0, 8)
			r.User().Word, s.User().Word = uint64(1000*round+i), 1<<63|uint64(i)
			OK(t, y.VI.PostRecv(r))
			OK(t, x.VI.PostSend(s))
		}
		for i := range n {
			for _, c := range []struct {
				e    *End
				cq   *via.CQ
				done func() (*via.Descriptor, error)
				want uint64
			}{{y, bcq, y.VI.RecvDone, uint64(1000*round + i)}, {x, acq, x.VI.SendDone, 1<<63 | uint64(i)}} {
				var got via.Completion
				p.Until(t, "a completion", func() (done bool) {
					var err error
					got, err = c.cq.Done()
					return err == nil
				})
				if d := Must(c.done())(t); got.User != c.want || d.User().Word != c.want {
					t.Fatalf("words %#x and %#x, want %#x", got.User, d.User().Word, c.want)
				}
			}
		}
	}
}

// testUnsignaled sends with and without completions.
func testUnsignaled(t T, p *Pair) {
	const depth, every = 8, 4
	ctx := Context(t)
	attributes := via.VIAttributes{SendDepth: depth, RecvDepth: depth}
	for _, withCQ := range []bool{false, true} {
		var cq *via.CQ
		if withCQ {
			cq = Must(p.A.CreateCQ(ctx, 2*depth))(t)
		}
		x := Must(Equip(ctx, Must(p.A.CreateVI(ctx, attributes, cq, cq))(t), 4096, 1))(t)
		y := NewEnd(t, p.B, Setup{Attributes: attributes})
		OK(t, ConnectVIs(ctx, x.VI, y.VI, t.Name()))
		sent := func(i int) *via.Descriptor {
			OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[i%depth], 0, 8)))
			d := x.Prepare(t, x.Send[i%depth], 0, 8)
			d.User().Word, d.User().Unsignaled = uint64(i), i%every != every-1
			return d
		}
		// One completion for each of every sends, whether a CQ says so or not.
		for i := range 10 * depth {
			OK(t, x.VI.PostSend(sent(i)))
			p.MustTake(t, y.VI.RecvDone)
			if i%every != every-1 {
				continue
			}
			if withCQ {
				p.Until(t, "a completion", func() bool {
					c, err := cq.Done()
					if err == nil && c.User != uint64(i) {
						t.Fatalf("completion of send %d, want %d", c.User, i)
					}
					return err == nil
				})
			}
			if d := p.MustTake(t, x.VI.SendDone); d.User().Word != uint64(i) {
				t.Fatalf("send %d came back, want %d", d.User().Word, i)
			}
			if d, err := x.VI.SendDone(); d != nil || err != via.ErrQueueEmpty {
				t.Fatalf("nothing is posted, and SendDone said %v", err)
			}
		}
		// Nobody asks: the queue is never full for long. With one descriptor more than it
		// holds, the next is the application's.
		spare := Must(x.VI.NewDescriptors(ctx, depth+1, 0))(t)
		for i := range 5 * depth {
			OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[i%depth], 0, 8)))
			d := spare[i%(depth+1)]
			d.Prepare()
			d.User().Unsignaled = true
			p.Until(t, "room", func() bool {
				err := x.VI.PostSend(d)
				if err != nil && err != via.ErrQueueFull {
					t.Fatal(err)
				}
				return err == nil
			})
			p.MustTake(t, y.VI.RecvDone)
		}
		p.Until(t, "the queue to be empty", func() bool {
			d, err := x.VI.SendDone()
			if d != nil {
				t.Fatal("an unsignalled send came back")
			}
			return err == via.ErrQueueEmpty
		})
		if cq != nil {
			if _, err := cq.Done(); err != via.ErrNotDone {
				t.Errorf("a completion of unsignalled sends: %v", err)
			}
		}
		if s := Must(x.VI.Query(ctx))(t); s.SendQueued != 0 {
			t.Errorf("%d sends are queued", s.SendQueued)
		}
		// In batches, the signalled ones alone.
		batch := make([]*via.Descriptor, depth)
		for i := range batch {
			batch[i] = sent(i)
		}
		if n, err := x.VI.PostSendBatch(batch); n != depth || err != nil {
			t.Fatalf("%d posted, %v", n, err)
		}
		got := make([]*via.Descriptor, depth)
		for total := 0; total < depth/every; {
			n, err := x.VI.SendDoneBatch(got)
			if err != nil && err != via.ErrNotDone {
				t.Fatal(err)
			}
			for _, d := range got[:n] {
				if total++; d.User().Word != uint64(total*every-1) {
					t.Fatalf("send %d came back as number %d", d.User().Word, total)
				}
			}
			p.A.Poll()
			p.B.Poll()
		}
		for range depth {
			p.MustTake(t, y.VI.RecvDone)
		}
		// An error is never kept quiet.
		bad := x.Prepare(t, x.Send[0], 0, 8)
		bad.User().Unsignaled = true
		bad.Control().Length = 9
		OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 8)))
		OK(t, x.VI.PostSend(bad))
		d, err := p.Take(t, x.VI.SendDone)
		if wantStatus(t, "an unsignalled send that fails", d, err, via.StatusLengthError); d != bad {
			t.Error("another descriptor came back")
		}
		// A receive is always reported.
		OK(t, y.VI.Disconnect(ctx))
		p.Until(t, "the receives", func() bool { _, err := y.VI.RecvDone(); return err == via.ErrQueueEmpty })
		OK(t, x.VI.Disconnect(ctx))
		OK(t, ConnectVIs(ctx, x.VI, y.VI, t.Name()))
		r := y.Prepare(t, y.Recv[1], 0, 8)
		r.User().Unsignaled = true
		OK(t, y.VI.PostRecv(r))
		OK(t, x.VI.PostSend(x.Prepare(t, x.Send[1], 0, 8)))
		if d := p.MustTake(t, y.VI.RecvDone); d != r {
			t.Error("another receive came back")
		}
	}
}
