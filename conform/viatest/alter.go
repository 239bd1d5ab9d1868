package viatest

import (
	"github.com/trapeze-nic/trapeze/via"
)

// testSetVIAttributes changes VIs while they are idle, and tries to while they are not.
func testSetVIAttributes(t T, p *Pair) {
	ctx := Context(t)
	tag, foreign := Must(p.A.CreatePtag(ctx))(t), Must(p.B.CreatePtag(ctx))(t)
	x, y := NewEnd(t, p.A, Setup{}), NewEnd(t, p.B, Setup{})
	before := x.VI.Attributes()
	limits := p.A.Query()
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
		WantError(t, name, x.VI.SetAttributes(ctx, c.a), c.want)
		if x.VI.Attributes() != before {
			t.Errorf("%s: attributes are %+v", name, x.VI.Attributes())
		}
	}

	// What did not fit together does once one side has changed: the request that was
	// turned down for it is still there.
	OK(t, y.VI.SetAttributes(ctx, via.VIAttributes{Reliability: via.Unreliable, MaxTransfer: 4000}))
	c, outcome := dial(ctx, t, y.VI, p.A)
	_, err := c.Accept(ctx, x.VI)
	WantError(t, "accept with another level", err, via.ErrInvalidReliability)
	OK(t, x.VI.SetAttributes(ctx, via.VIAttributes{Reliability: via.Unreliable, MaxTransfer: 4000, Ptag: tag}))
	Must(c.Accept(ctx, x.VI))(t)
	OK(t, <-outcome)
	if s := Must(x.VI.Query(ctx))(t); s.State != via.Connected || s.Attributes.MaxTransfer != 4000 || s.Attributes.Ptag != tag {
		t.Errorf("VI is %+v", s)
	}
	WantError(t, "set attributes of a connected VI", x.VI.SetAttributes(ctx, via.VIAttributes{}), via.ErrInvalidState)
	WantError(t, "ptag of the VI", tag.Destroy(ctx), via.ErrResource)
	OK(t, x.VI.Disconnect(ctx))
	p.Until(t, "the other end to notice", func() bool { return Must(y.VI.Query(ctx))(t).State == via.ErrorState })
	WantError(t, "set attributes in the error state", y.VI.SetAttributes(ctx, via.VIAttributes{}), via.ErrInvalidState)
	OK(t, y.VI.Disconnect(ctx))

	// Descriptors go with the VI, memory does not.
	OK(t, x.VI.SetAttributes(ctx, via.VIAttributes{Ptag: tag}))
	OK(t, y.VI.SetAttributes(ctx, via.VIAttributes{}))
	OK(t, ConnectVIs(ctx, x.VI, y.VI, t.Name()))
	OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 100)))
	OK(t, x.Memory.SetAttributes(ctx, via.MemoryAttributes{Ptag: tag}))
	OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 100)))
	p.MustTake(t, y.VI.RecvDone)
	p.MustTake(t, x.VI.SendDone)
	exchange(t, p, x, y, 30000, 1)
	OK(t, x.VI.Disconnect(ctx))
	OK(t, x.VI.SetAttributes(ctx, via.VIAttributes{}))
	WantError(t, "ptag of the memory", tag.Destroy(ctx), via.ErrResource)
	OK(t, x.Memory.Deregister(ctx))
	OK(t, tag.Destroy(ctx))
	WantError(t, "a destroyed ptag", x.VI.SetAttributes(ctx, via.VIAttributes{Ptag: tag}), via.ErrInvalidParameter)
	for x.VI.Destroy(ctx) != nil {
		if _, err := x.VI.SendDone(); err == via.ErrQueueEmpty {
			_, err = x.VI.RecvDone()
			if err == via.ErrQueueEmpty {
				t.Fatal("a VI with empty queues cannot be destroyed")
			}
		}
	}
	WantError(t, "set attributes of a destroyed VI", x.VI.SetAttributes(ctx, via.VIAttributes{}), via.ErrClosed)
}

// testSetMemoryAttributes changes ptag and rights of memory that is in use.
func testSetMemoryAttributes(t T, p *Pair) {
	ctx := Context(t)
	tag, foreign := Must(p.A.CreatePtag(ctx))(t), Must(p.B.CreatePtag(ctx))(t)
	x, y := p.Connect(t, Setup{Attributes: via.VIAttributes{Reliability: via.Unreliable}})
	m := Must(p.A.Alloc(ctx, 4096, via.MemoryAttributes{}))(t)
	handle, before := m.Handle(), m.Attributes()
	constant := Must(p.A.Alloc(ctx, 4096, via.MemoryAttributes{ReadOnly: true}))(t)
	WantError(t, "a foreign ptag", m.SetAttributes(ctx, via.MemoryAttributes{Ptag: foreign}), via.ErrInvalidParameter)
	WantError(t, "writing to what was allocated for reading", constant.SetAttributes(ctx, via.MemoryAttributes{}), via.ErrInvalidParameter)
	if m.Attributes() != before || !constant.Attributes().ReadOnly {
		t.Errorf("attributes are %+v and %+v", m.Attributes(), constant.Attributes())
	}

	// send and receive name the memory, and say how that went.
	send := func() error {
		x.Send[0].Prepare()
		OK(t, m.AddTo(x.Send[0], 0, 100))
		OK(t, x.VI.PostSend(x.Send[0]))
		_, err := p.Take(t, x.VI.SendDone)
		return err
	}
	receive := func() error {
		x.Recv[0].Prepare()
		OK(t, m.AddTo(x.Recv[0], 0, 100))
		OK(t, x.VI.PostRecv(x.Recv[0]))
		_, err := receiveSome(t, p, y, x)
		p.Until(t, "the sends", func() bool { _, err := y.VI.SendDone(); return err == via.ErrQueueEmpty })
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		WantError(t, what, err, via.ErrDescriptor)
	}
	OK(t, send())
	OK(t, receive())
	OK(t, m.SetAttributes(ctx, via.MemoryAttributes{ReadOnly: true}))
	OK(t, send())
	refused("receive into memory that is for reading now", receive())
	OK(t, m.SetAttributes(ctx, via.MemoryAttributes{Ptag: tag}))
	refused("send from memory that has another ptag now", send())
	WantError(t, "ptag of memory", tag.Destroy(ctx), via.ErrResource)
	OK(t, m.SetAttributes(ctx, via.MemoryAttributes{}))
	OK(t, tag.Destroy(ctx))
	OK(t, send())
	OK(t, receive())
	if m.Handle() != handle || m.Attributes() != before {
		t.Errorf("handle %#x, was %#x; attributes %+v", m.Handle(), handle, m.Attributes())
	}

	// Descriptors in memory of another ptag are refused at the post, also by a work
	// queue that has just taken one from there.
	d := Must(m.NewDescriptor(2048, 0))(t)
	OK(t, x.VI.PostSend(d))
	if got, _ := p.Take(t, x.VI.SendDone); got != d {
		t.Error("another descriptor came back")
	}
	other := Must(p.A.CreatePtag(ctx))(t)
	OK(t, m.SetAttributes(ctx, via.MemoryAttributes{Ptag: other}))
	d.Rearm()
	WantError(t, "descriptor in memory of another ptag", x.VI.PostSend(d), via.ErrInvalidPtag)
	OK(t, m.Deregister(ctx))
	OK(t, other.Destroy(ctx))
	WantError(t, "set attributes of deregistered memory", m.SetAttributes(ctx, via.MemoryAttributes{}), via.ErrClosed)
}

// testCQResize makes a CQ larger and smaller while completions are in it and come.
func testCQResize(t T, p *Pair) {
	const depth = 8
	ctx := Context(t)
	a := via.VIAttributes{SendDepth: depth, RecvDepth: depth}
	cq := Must(p.B.CreateCQ(ctx, 2*depth))(t)
	limit := p.B.Query().MaxCQEntries
	x := NewEnd(t, p.A, Setup{Attributes: a})
	y := Must(Equip(ctx, Must(p.B.CreateVI(ctx, a, cq, cq))(t), 4096, 1))(t)
	OK(t, ConnectVIs(ctx, x.VI, y.VI, t.Name()))
	for _, entries := range []int{0, -1, limit + 1} {
		WantError(t, "no such size", cq.Resize(ctx, entries), via.ErrInvalidParameter)
	}
	WantError(t, "too small for its queues", cq.Resize(ctx, 2*depth-1), via.ErrResource)
	_, err := p.B.CreateVI(ctx, a, cq, nil)
	WantError(t, "another VI, before", err, via.ErrResource)

	received := 0
	take := func() {
		t.Helper()
		var c via.Completion
		p.Until(t, "a completion", func() (done bool) {
			var err error
			c, err = cq.Done()
			return err != via.ErrNotDone
		})
		if c.VI != y.VI || c.Queue != via.RecvQueue {
			t.Fatalf("completion %+v", c)
		}
		d := Must(y.VI.RecvDone())(t)
		if got, _ := d.Immediate(); got != uint32(received) {
			t.Fatalf("message %d came as number %d", got, received)
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
			OK(t, cq.Resize(ctx, size))
			if cq.Entries() < size {
				t.Fatalf("%d entries, %d asked for", cq.Entries(), size)
			}
		}
		OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[i%depth], 0, 8)))
		d := x.Prepare(t, x.Send[i%depth], 0, 8)
		d.SetImmediate(uint32(i))
		OK(t, x.VI.PostSend(d))
		p.MustTake(t, x.VI.SendDone)
	}
	OK(t, cq.Resize(ctx, 4*depth))
	for received < 20*depth {
		take()
	}
	if _, err := cq.Done(); err != via.ErrNotDone {
		t.Errorf("one completion more than messages: %v", err)
	}

	// A waiter sees what comes after a change.
	waited := make(chan error, 1)
	go func() {
		_, err := cq.Wait(ctx)
		waited <- err
	}()
	OK(t, cq.Resize(ctx, 64))
	OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 8)))
	OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 8)))
	p.MustTake(t, x.VI.SendDone)
	if err := <-waited; err != nil {
		t.Error(err)
	}
	Must(y.VI.RecvDone())(t)

	// There is room for another VI now.
	more := Must(p.B.CreateVI(ctx, a, cq, nil))(t)
	OK(t, more.Destroy(ctx))
	for _, e := range []*End{x, y} {
		OK(t, e.VI.Disconnect(ctx))
		OK(t, e.VI.Destroy(ctx))
	}
	OK(t, cq.Destroy(ctx))
	WantError(t, "resize what is destroyed", cq.Resize(ctx, 64), via.ErrClosed)
}
