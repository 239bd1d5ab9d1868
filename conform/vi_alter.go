package conform

import (
	"github.com/trapeze-nic/trapeze/via"
)

// testSetVIAttributes changes VIs while they are idle, and tries to while they are not.
func testSetVIAttributes(w *World) {
	ctx := Context(w)
	tag, foreign := Must(w.A.CreatePtag(ctx))(w), Must(w.B.CreatePtag(ctx))(w)
	x, y := NewEnd(w, w.A, Setup{}), NewEnd(w, w.B, Setup{})
	before := x.VI.Attributes()
	limits := w.A.Query()
	for name, c := range map[string]struct {
		a    via.VIAttributes
		want error
	}{
		"no such level":        {via.VIAttributes{Reliability: 8}, via.ErrInvalidReliability},
		"transfers too large":  {via.VIAttributes{MaxTransfer: limits.MaxTransfer + 1}, via.ErrInvalidMTU},
		"a foreign ptag":       {via.VIAttributes{Ptag: foreign}, via.ErrInvalidParameter},
		"another depth":        {via.VIAttributes{SendDepth: before.SendDepth / 2}, via.ErrInvalidParameter},
		"raw frames":           {via.VIAttributes{Frames: via.AllFrames}, via.ErrInvalidParameter},
		"read, not reliable":   {via.VIAttributes{Reliability: via.Unreliable, RDMARead: true}, via.ErrInvalidRDMARead},
		"another receive side": {via.VIAttributes{RecvDepth: before.RecvDepth + 1}, via.ErrInvalidParameter},
	} {
		wantError(w, name, x.VI.SetAttributes(ctx, c.a), c.want)
		if x.VI.Attributes() != before {
			w.Errorf("%s: attributes are %+v", name, x.VI.Attributes())
		}
	}

	// What did not fit together does once one side has changed: the request that was
	// turned down for it is still there.
	OK(w, y.VI.SetAttributes(ctx, via.VIAttributes{Reliability: via.Unreliable, MaxTransfer: 4000}))
	c, outcome := dial(ctx, w, y.VI, w.A)
	_, err := c.Accept(ctx, x.VI)
	wantError(w, "accept with another level", err, via.ErrInvalidReliability)
	OK(w, x.VI.SetAttributes(ctx, via.VIAttributes{Reliability: via.Unreliable, MaxTransfer: 4000, Ptag: tag}))
	Must(c.Accept(ctx, x.VI))(w)
	OK(w, <-outcome)
	if s := Must(x.VI.Query(ctx))(w); s.State != via.Connected || s.Attributes.MaxTransfer != 4000 || s.Attributes.Ptag != tag {
		w.Errorf("VI is %+v", s)
	}
	wantError(w, "set attributes of a connected VI", x.VI.SetAttributes(ctx, via.VIAttributes{}), via.ErrInvalidState)
	wantError(w, "ptag of the VI", tag.Close(ctx), via.ErrResource)
	OK(w, x.VI.Disconnect(ctx))
	w.Until("the other end to notice", func() bool { return Must(y.VI.Query(ctx))(w).State == via.ErrorState })
	wantError(w, "set attributes in the error state", y.VI.SetAttributes(ctx, via.VIAttributes{}), via.ErrInvalidState)
	OK(w, y.VI.Disconnect(ctx))

	// Descriptors go with the VI, memory does not.
	OK(w, x.VI.SetAttributes(ctx, via.VIAttributes{Ptag: tag}))
	OK(w, y.VI.SetAttributes(ctx, via.VIAttributes{}))
	OK(w, ConnectVIs(ctx, x.VI, y.VI, w.Name()))
	OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 100)))
	OK(w, x.Memory.SetAttributes(ctx, via.MemoryAttributes{Ptag: tag}))
	OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 100)))
	w.MustTake(y.VI.RecvDone)
	w.MustTake(x.VI.SendDone)
	exchange(w, x, y, 30000, 1)
	OK(w, x.VI.Disconnect(ctx))
	OK(w, x.VI.SetAttributes(ctx, via.VIAttributes{}))
	wantError(w, "ptag of the memory", tag.Close(ctx), via.ErrResource)
	OK(w, x.Memory.Close(ctx))
	OK(w, tag.Close(ctx))
	wantError(w, "a destroyed ptag", x.VI.SetAttributes(ctx, via.VIAttributes{Ptag: tag}), via.ErrInvalidParameter)
	for x.VI.Close(ctx) != nil {
		if _, err := x.VI.SendDone(); err == via.ErrQueueEmpty {
			_, err = x.VI.RecvDone()
			if err == via.ErrQueueEmpty {
				w.Fatal("a VI with empty queues cannot be destroyed")
			}
		}
	}
	wantError(w, "set attributes of a destroyed VI", x.VI.SetAttributes(ctx, via.VIAttributes{}), via.ErrClosed)
}

// testSetMemoryAttributes changes ptag and rights of memory that is in use.
func testSetMemoryAttributes(w *World) {
	ctx := Context(w)
	tag, foreign := Must(w.A.CreatePtag(ctx))(w), Must(w.B.CreatePtag(ctx))(w)
	x, y := w.Connect(Setup{Attributes: via.VIAttributes{Reliability: via.Unreliable}})
	m := Must(w.A.Alloc(ctx, 4096, via.MemoryAttributes{}))(w)
	handle, before := m.Handle(), m.Attributes()
	constant := Must(w.A.Alloc(ctx, 4096, via.MemoryAttributes{ReadOnly: true}))(w)
	wantError(w, "a foreign ptag", m.SetAttributes(ctx, via.MemoryAttributes{Ptag: foreign}), via.ErrInvalidParameter)
	wantError(w, "writing to what was allocated for reading", constant.SetAttributes(ctx, via.MemoryAttributes{}), via.ErrInvalidParameter)
	if m.Attributes() != before || !constant.Attributes().ReadOnly {
		w.Errorf("attributes are %+v and %+v", m.Attributes(), constant.Attributes())
	}

	// send and receive name the memory, and say how that went.
	send := func() error {
		x.Send[0].Prepare()
		OK(w, m.AddTo(x.Send[0], 0, 100))
		OK(w, x.VI.PostSend(x.Send[0]))
		_, err := w.Take(x.VI.SendDone)
		return err
	}
	receive := func() error {
		x.Recv[0].Prepare()
		OK(w, m.AddTo(x.Recv[0], 0, 100))
		OK(w, x.VI.PostRecv(x.Recv[0]))
		_, err := receiveSome(w, y, x)
		w.Until("the sends", func() bool { _, err := y.VI.SendDone(); return err == via.ErrQueueEmpty })
		return err
	}
	refused := func(what string, err error) {
		w.Helper()
		wantError(w, what, err, via.ErrDescriptor)
	}
	OK(w, send())
	OK(w, receive())
	OK(w, m.SetAttributes(ctx, via.MemoryAttributes{ReadOnly: true}))
	OK(w, send())
	refused("receive into memory that is for reading now", receive())
	OK(w, m.SetAttributes(ctx, via.MemoryAttributes{Ptag: tag}))
	refused("send from memory that has another ptag now", send())
	wantError(w, "ptag of memory", tag.Close(ctx), via.ErrResource)
	OK(w, m.SetAttributes(ctx, via.MemoryAttributes{}))
	OK(w, tag.Close(ctx))
	OK(w, send())
	OK(w, receive())
	if m.Handle() != handle || m.Attributes() != before {
		w.Errorf("handle %#x, was %#x; attributes %+v", m.Handle(), handle, m.Attributes())
	}

	// Descriptors in memory of another ptag are refused at the post, also by a work
	// queue that has just taken one from there.
	d := Must(m.NewDescriptor(2048, 0))(w)
	OK(w, x.VI.PostSend(d))
	if got, _ := w.Take(x.VI.SendDone); got != d {
		w.Error("another descriptor came back")
	}
	other := Must(w.A.CreatePtag(ctx))(w)
	OK(w, m.SetAttributes(ctx, via.MemoryAttributes{Ptag: other}))
	d.Rearm()
	wantError(w, "descriptor in memory of another ptag", x.VI.PostSend(d), via.ErrInvalidPtag)
	OK(w, m.Close(ctx))
	OK(w, other.Close(ctx))
	wantError(w, "set attributes of deregistered memory", m.SetAttributes(ctx, via.MemoryAttributes{}), via.ErrClosed)
}

// testCQResize makes a CQ larger and smaller while completions are in it and come.
func testCQResize(w *World) {
	const depth = 8
	ctx := Context(w)
	a := via.VIAttributes{SendDepth: depth, RecvDepth: depth}
	cq := Must(w.B.CreateCQ(ctx, 2*depth))(w)
	limit := w.B.Query().MaxCQEntries
	x := NewEnd(w, w.A, Setup{Attributes: a})
	y := Must(Equip(ctx, w.B, Must(w.B.CreateVI(ctx, a, cq, cq))(w), 4096, 1))(w)
	OK(w, ConnectVIs(ctx, x.VI, y.VI, w.Name()))
	for _, entries := range []int{0, -1, limit + 1} {
		wantError(w, "no such size", cq.Resize(ctx, entries), via.ErrInvalidParameter)
	}
	wantError(w, "too small for its queues", cq.Resize(ctx, 2*depth-1), via.ErrResource)
	_, err := w.B.CreateVI(ctx, a, cq, nil)
	wantError(w, "another VI, before", err, via.ErrResource)

	received := 0
	take := func() {
		w.Helper()
		var c via.Completion
		w.Until("a completion", func() (done bool) {
			var err error
			c, err = cq.Done()
			return err != via.ErrNotDone
		})
		if c.VI != y.VI || c.Queue != via.RecvQueue {
			w.Fatalf("completion %+v", c)
		}
		d := Must(y.VI.RecvDone())(w)
		if got, _ := d.Immediate(); got != uint32(received) {
			w.Fatalf("message %d came as number %d", got, received)
		}
		received++
	}
	// Not the limit: a guest maps such a ring page by page, which takes minutes.
	large := min(limit, 1<<14)
	sizes := []int{2 * depth, 64, 4096, 33, 2*depth + 1, large, 2 * depth}
	for i := range 20 * depth {
		// Entries wait in the old ring at some of the changes, and fill either.
		for received < i-i%depth {
			take()
		}
		if i%3 == 0 {
			size := sizes[i/3%len(sizes)]
			OK(w, cq.Resize(ctx, size))
			if cq.Entries() < size {
				w.Fatalf("%d entries, %d asked for", cq.Entries(), size)
			}
		}
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[i%depth], 0, 8)))
		d := x.Prepare(w, x.Send[i%depth], 0, 8)
		d.SetImmediate(uint32(i))
		OK(w, x.VI.PostSend(d))
		w.MustTake(x.VI.SendDone)
	}
	OK(w, cq.Resize(ctx, 4*depth))
	for received < 20*depth {
		take()
	}
	if _, err := cq.Done(); err != via.ErrNotDone {
		w.Errorf("one completion more than messages: %v", err)
	}

	// A waiter sees what comes after a change.
	waited := make(chan error, 1)
	go func() {
		_, err := cq.Wait(ctx)
		waited <- err
	}()
	OK(w, cq.Resize(ctx, 64))
	OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 8)))
	OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 8)))
	w.MustTake(x.VI.SendDone)
	if err := <-waited; err != nil {
		w.Error(err)
	}
	Must(y.VI.RecvDone())(w)

	// There is room for another VI now.
	more := Must(w.B.CreateVI(ctx, a, cq, nil))(w)
	OK(w, more.Close(ctx))
	for _, e := range []*End{x, y} {
		OK(w, e.VI.Disconnect(ctx))
		OK(w, e.VI.Close(ctx))
	}
	OK(w, cq.Close(ctx))
	wantError(w, "resize what is destroyed", cq.Resize(ctx, 64), via.ErrClosed)
}
