package viatest

import (
	"bytes"
	"errors"

	"github.com/trapeze-nic/trapeze/via"
)

func testRegistration(t T, p *Pair) {
	ctx := Context(t)
	m := Must(p.A.Alloc(ctx, 10000, via.MemoryAttributes{}))(t)
	if m.Size() != 10000 || len(m.Bytes()) != 10000 || m.Address()%64 != 0 {
		t.Errorf("%d bytes at %#x", m.Size(), m.Address())
	}
	for i, b := range m.Bytes() {
		if b != 0 {
			t.Fatalf("byte %d of new memory is %#x", i, b)
		}
	}
	part := Must(p.A.Register(ctx, m.Bytes()[100:200], via.MemoryAttributes{ReadOnly: true}))(t)
	if part.Handle() == m.Handle() || part.Address() != m.Address()+100 || part.Size() != 100 {
		t.Errorf("part with handle %#x: %d bytes at %#x", part.Handle(), part.Size(), part.Address())
	}
	// Either registration may go first; the bytes stay until both are gone.
	OK(t, m.Deregister(ctx))
	part.Bytes()[0] = 7
	OK(t, part.Deregister(ctx))
	WantError(t, "deregister twice", m.Deregister(ctx), via.ErrClosed, via.ErrInvalidParameter)

	_, err := p.A.Register(ctx, make([]byte, 4096), via.MemoryAttributes{})
	WantError(t, "register Go memory", err, via.ErrNotSupported)
	_, err = p.A.Register(ctx, nil, via.MemoryAttributes{})
	WantError(t, "register nothing", err, via.ErrInvalidParameter)
	for _, size := range []int{0, -1} {
		_, err = p.A.Alloc(ctx, size, via.MemoryAttributes{})
		WantError(t, "allocate nothing", err, via.ErrInvalidParameter)
	}

	// Memory with a descriptor on it that is posted cannot go.
	vi := Must(p.A.CreateVI(ctx, via.VIAttributes{}, nil, nil))(t)
	own := Must(p.A.Alloc(ctx, 4096, via.MemoryAttributes{}))(t)
	OK(t, vi.PostRecv(Must(own.NewDescriptor(0, 0))(t)))
	WantError(t, "deregister posted descriptors", own.Deregister(ctx), via.ErrResource)
	OK(t, vi.Disconnect(ctx))
	d, err := p.Take(t, vi.RecvDone)
	wantStatus(t, "receive that was held", d, err, via.StatusFlushed)
	OK(t, own.Deregister(ctx))
}

func testPtagInUse(t T, p *Pair) {
	ctx := Context(t)
	tag := Must(p.A.CreatePtag(ctx))(t)
	m := Must(p.A.Alloc(ctx, 64, via.MemoryAttributes{Ptag: tag}))(t)
	WantError(t, "ptag of memory", tag.Destroy(ctx), via.ErrResource)
	OK(t, m.Deregister(ctx))
	vi := Must(p.A.CreateVI(ctx, via.VIAttributes{Ptag: tag}, nil, nil))(t)
	WantError(t, "ptag of a VI", tag.Destroy(ctx), via.ErrResource)
	OK(t, vi.Destroy(ctx))
	OK(t, tag.Destroy(ctx))
	WantError(t, "destroy twice", tag.Destroy(ctx), via.ErrClosed, via.ErrInvalidParameter)
	_, err := p.A.Alloc(ctx, 64, via.MemoryAttributes{Ptag: tag})
	WantError(t, "memory with a destroyed ptag", err, via.ErrInvalidParameter)
	_, err = p.A.CreateVI(ctx, via.VIAttributes{Ptag: tag}, nil, nil)
	WantError(t, "VI with a destroyed ptag", err, via.ErrInvalidParameter)
}

// testProtection names memory in descriptors that the VI must not touch. The
// descriptor completes with an error; on a reliable VI the connection breaks, on
// an unreliable one it stays; everything else goes on.
func testProtection(t T, p *Pair) {
	ctx := Context(t)
	bystanderA, bystanderB := p.Connect(t, Setup{})
	foreignTag := Must(p.A.CreatePtag(ctx))(t)
	foreign := Must(p.A.Alloc(ctx, 4096, via.MemoryAttributes{Ptag: foreignTag}))(t)
	readOnly := Must(p.A.Alloc(ctx, 4096, via.MemoryAttributes{ReadOnly: true}))(t)
	other := Must(p.B.Alloc(ctx, 4096, via.MemoryAttributes{}))(t)

	cases := []struct {
		name       string
		segment    func(e *End, d *via.Descriptor) error
		send, recv bool // which queues must refuse it
	}{
		{"memory of another ptag", func(_ *End, d *via.Descriptor) error { return foreign.AddTo(d, 0, 100) }, true, true},
		{"memory of another NIC", func(_ *End, d *via.Descriptor) error { return other.AddTo(d, 0, 100) }, true, true},
		{"read-only memory", func(_ *End, d *via.Descriptor) error { return readOnly.AddTo(d, 0, 100) }, false, true},
		{"handle that nobody has", func(e *End, d *via.Descriptor) error { return d.AddData(e.Memory.Address(), 0xdeadbeef, 100) }, true, true},
		{"handle 0", func(e *End, d *via.Descriptor) error { return d.AddData(e.Memory.Address(), 0, 100) }, true, true},
		{"past the end", func(e *End, d *via.Descriptor) error {
			return d.AddData(e.Memory.Address()+uint64(e.Memory.Size())-99, e.Memory.Handle(), 100)
		}, true, true},
		{"before the start", func(e *End, d *via.Descriptor) error { return d.AddData(e.Memory.Address()-1, e.Memory.Handle(), 100) }, true, true},
		{"around the end of the address space", func(e *End, d *via.Descriptor) error { return d.AddData(1<<64-50, e.Memory.Handle(), 100) }, true, true},
	}
	for _, level := range []via.Reliability{via.ReliableDelivery, via.Unreliable} {
		for _, c := range cases {
			subtest(t, level.String()+"/"+c.name, func(t T) {
				x, y := p.Connect(t, Setup{Attributes: via.VIAttributes{Reliability: level}})
				if c.send {
					// A reliable send is looked at when there is a receive for it.
					OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 100)))
					x.Send[0].Prepare()
					OK(t, c.segment(x, x.Send[0]))
					OK(t, x.VI.PostSend(x.Send[0]))
					d, err := p.Take(t, x.VI.SendDone)
					wantStatus(t, "send", d, err, via.StatusProtectionError)
					wantBroken(t, p, x, y, level)
				}
				if c.recv {
					x, y = p.Connect(t, Setup{Attributes: via.VIAttributes{Reliability: level}})
					x.Recv[0].Prepare()
					OK(t, c.segment(x, x.Recv[0]))
					OK(t, x.VI.PostRecv(x.Recv[0]))
					d, err := receiveSome(t, p, y, x)
					wantStatus(t, "receive", d, err, via.StatusProtectionError)
					wantBroken(t, p, x, y, level)
				}
			})
		}
	}
	exchange(t, p, bystanderA, bystanderB, 5000, 1)

	x, y := p.Connect(t, Setup{})
	x.Send[0].Prepare()
	OK(t, readOnly.AddTo(x.Send[0], 0, 100))
	OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 100)))
	OK(t, x.VI.PostSend(x.Send[0]))
	p.MustTake(t, y.VI.RecvDone)
	p.MustTake(t, x.VI.SendDone)

	strange := Must(foreign.NewDescriptor(1024, 0))(t)
	WantError(t, "descriptor of another ptag", x.VI.PostSend(strange), via.ErrInvalidPtag)
	strange = Must(other.NewDescriptor(1024, 0))(t)
	// Its handle may be that of other memory here, so that the code differs.
	if err := x.VI.PostSend(strange); !errors.Is(err, via.ErrInvalidParameter) && !errors.Is(err, via.ErrInvalidPtag) {
		t.Errorf("descriptor of another NIC: error %v", err)
	}
	exchange(t, p, x, y, 100, 2)
}

// receiveSome sends messages of 100 bytes from one end until the other has
// received one, well or badly: an unreliable wire may lose some.
func receiveSome(t T, p *Pair, from, to *End) (d *via.Descriptor, err error) {
	t.Helper()
	OK(t, from.VI.PostSend(from.Prepare(t, from.Send[0], 0, 100)))
	p.Until(t, "a receive", func() bool {
		if from.VI.Attributes().Reliability == via.Unreliable {
			if _, err := from.VI.SendDone(); err == nil {
				OK(t, from.VI.PostSend(from.Prepare(t, from.Send[0], 0, 100)))
			}
		}
		d, err = to.VI.RecvDone()
		return err != via.ErrNotDone
	})
	return d, err
}

// wantBroken checks what an error has done to a connection: broken it on
// reliable VIs, nothing on unreliable ones.
func wantBroken(t T, p *Pair, x, y *End, level via.Reliability) {
	t.Helper()
	if level == via.Unreliable {
		wantState(t, x.VI, via.Connected)
		wantState(t, y.VI, via.Connected)
		return
	}
	for _, e := range []*End{x, y} {
		p.Until(t, "the connection to break", func() bool {
			return Must(e.VI.Query(Context(t)))(t).State == via.ErrorState
		})
	}
}

// testStaleHandle posts a send from memory that is gone when it can go out, and whose bytes are
// registered again under so many other handles that its place in the NIC's table is used again.
func testStaleHandle(t T, p *Pair) {
	ctx := Context(t)
	x, y := p.Connect(t, Setup{})
	keep := Must(p.A.Alloc(ctx, 4096, via.MemoryAttributes{}))(t)
	register := func() *via.Memory { return Must(p.A.Register(ctx, keep.Bytes(), via.MemoryAttributes{}))(t) }
	m := register()
	x.Send[0].Prepare()
	OK(t, m.AddTo(x.Send[0], 0, 100))
	OK(t, x.VI.PostSend(x.Send[0])) // waits: there is no receive for it
	p.A.Poll()
	p.B.Poll()
	// A NIC may let places rest before it uses them again; ours has 256 that do.
	others := make([]*via.Memory, min(320, p.A.Query().MaxRegions/2))
	for i := range others {
		others[i] = register()
	}
	OK(t, m.Deregister(ctx))
	for _, o := range others {
		OK(t, o.Deregister(ctx))
	}
	for range others {
		// It may get the number of the old handle, but never all of it.
		if o := register(); o.Handle() == m.Handle() {
			t.Errorf("handle %#x was given out again", m.Handle())
		}
	}
	OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 100)))
	d, err := p.Take(t, x.VI.SendDone)
	wantStatus(t, "send from memory that has gone", d, err, via.StatusProtectionError)
	wantBroken(t, p, x, y, via.ReliableDelivery)
}

// testTakenFromReceive takes memory away from a receive that waits, after the NIC had time to
// fetch it: the message is refused, and nothing is written, not to what comes before that memory
// either.
func testTakenFromReceive(t T, p *Pair) {
	const size, before = 1000, 100
	ctx := Context(t)
	keep := Must(p.B.Alloc(ctx, size, via.MemoryAttributes{}))(t)
	for _, front := range []int{0, before} {
		for _, level := range []via.Reliability{via.ReliableDelivery, via.ReliableReception} {
			x, y := p.Connect(t, Setup{Attributes: via.VIAttributes{Reliability: level}, Segments: 2})
			m := Must(p.B.Register(ctx, keep.Bytes(), via.MemoryAttributes{}))(t)
			y.Recv[0].Prepare()
			if front > 0 {
				y.Prepare(t, y.Recv[0], 0, front)
			}
			OK(t, m.AddTo(y.Recv[0], 0, size))
			OK(t, y.VI.PostRecv(y.Recv[0]))
			for range 100 { // it fetches when there is nothing else to do
				p.A.Poll()
				p.B.Poll()
			}
			OK(t, m.Deregister(ctx))
			pattern(x.Memory.Bytes()[:front+size], 1)
			OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, front+size)))
			d, err := p.Take(t, y.VI.RecvDone)
			wantStatus(t, "a receive whose memory is gone", d, err, via.StatusProtectionError)
			d, err = p.Take(t, x.VI.SendDone)
			wantStatus(t, "its message", d, err, via.StatusRemoteDescriptor)
			if !bytes.Equal(keep.Bytes(), make([]byte, size)) || !bytes.Equal(y.Memory.Bytes()[:front], make([]byte, front)) {
				t.Fatal("memory was written after some of it had been taken away")
			}
		}
	}
}
