package conform

import (
	"bytes"
	"errors"

	"github.com/trapeze-nic/trapeze/via"
)

func testRegistration(w *World) {
	ctx := Context(w)
	m := Must(w.A.Alloc(ctx, 10000, via.MemoryAttributes{}))(w)
	if m.Size() != 10000 || len(m.Bytes()) != 10000 || m.Address()%64 != 0 {
		w.Errorf("%d bytes at %#x", m.Size(), m.Address())
	}
	for i, b := range m.Bytes() {
		if b != 0 {
			w.Fatalf("byte %d of new memory is %#x", i, b)
		}
	}
	part := Must(w.A.Register(ctx, m.Bytes()[100:200], via.MemoryAttributes{ReadOnly: true}))(w)
	if part.Handle() == m.Handle() || part.Address() != m.Address()+100 || part.Size() != 100 {
		w.Errorf("part with handle %#x: %d bytes at %#x", part.Handle(), part.Size(), part.Address())
	}
	// Either registration may go first; the bytes stay until both are gone.
	OK(w, m.Close(ctx))
	part.Bytes()[0] = 7
	OK(w, part.Close(ctx))
	OK(w, m.Close(ctx)) // again

	_, err := w.A.Register(ctx, make([]byte, 4096), via.MemoryAttributes{})
	wantError(w, "register Go memory", err, via.ErrNotSupported)
	_, err = w.A.Register(ctx, nil, via.MemoryAttributes{})
	wantError(w, "register nothing", err, via.ErrInvalidParameter)
	for _, size := range []int{0, -1} {
		_, err = w.A.Alloc(ctx, size, via.MemoryAttributes{})
		wantError(w, "allocate nothing", err, via.ErrInvalidParameter)
	}

	// Memory with a descriptor on it that is posted cannot go.
	vi := Must(w.A.CreateVI(ctx, via.VIAttributes{}, nil, nil))(w)
	own := Must(w.A.Alloc(ctx, 4096, via.MemoryAttributes{}))(w)
	OK(w, vi.PostRecv(Must(own.NewDescriptor(0, 0))(w)))
	wantError(w, "deregister posted descriptors", own.Close(ctx), via.ErrResource)
	OK(w, vi.Disconnect(ctx))
	d, err := w.Take(vi.RecvDone)
	wantStatus(w, "receive that was held", d, err, via.StatusFlushed)
	OK(w, own.Close(ctx))
}

func testPtagInUse(w *World) {
	ctx := Context(w)
	tag := Must(w.A.CreatePtag(ctx))(w)
	m := Must(w.A.Alloc(ctx, 64, via.MemoryAttributes{Ptag: tag}))(w)
	wantError(w, "ptag of memory", tag.Close(ctx), via.ErrResource)
	OK(w, m.Close(ctx))
	vi := Must(w.A.CreateVI(ctx, via.VIAttributes{Ptag: tag}, nil, nil))(w)
	wantError(w, "ptag of a VI", tag.Close(ctx), via.ErrResource)
	OK(w, vi.Close(ctx))
	OK(w, tag.Close(ctx))
	OK(w, tag.Close(ctx)) // again
	_, err := w.A.Alloc(ctx, 64, via.MemoryAttributes{Ptag: tag})
	wantError(w, "memory with a destroyed ptag", err, via.ErrInvalidParameter)
	_, err = w.A.CreateVI(ctx, via.VIAttributes{Ptag: tag}, nil, nil)
	wantError(w, "VI with a destroyed ptag", err, via.ErrInvalidParameter)
}

// testProtection names memory in descriptors that the VI must not touch. The
// descriptor completes with an error; on a reliable VI the connection breaks, on
// an unreliable one it stays; everything else goes on.
func testProtection(w *World) {
	ctx := Context(w)
	bystanderA, bystanderB := w.Connect(Setup{})
	foreignTag := Must(w.A.CreatePtag(ctx))(w)
	foreign := Must(w.A.Alloc(ctx, 4096, via.MemoryAttributes{Ptag: foreignTag}))(w)
	readOnly := Must(w.A.Alloc(ctx, 4096, via.MemoryAttributes{ReadOnly: true}))(w)
	other := Must(w.B.Alloc(ctx, 4096, via.MemoryAttributes{}))(w)

	cases := []struct {
		name       string
		segment    func(e *End, d *via.Descriptor) error
		send, recv bool // which queues must refuse it
	}{
		{"memory of another ptag", func(_ *End, d *via.Descriptor) error { return foreign.AddTo(d, 0, 100) }, true, true},
		{"memory of another NIC", func(_ *End, d *via.Descriptor) error { return other.AddTo(d, 0, 100) }, true, true},
		{"read-only memory", func(_ *End, d *via.Descriptor) error { return readOnly.AddTo(d, 0, 100) }, false, true},
		{"handle without a region", func(e *End, d *via.Descriptor) error { return d.AddData(e.Memory.Address(), 0xdeadbeef, 100) }, true, true},
		{"handle 0", func(e *End, d *via.Descriptor) error { return d.AddData(e.Memory.Address(), 0, 100) }, true, true},
		{"past the end", func(e *End, d *via.Descriptor) error {
			return d.AddData(e.Memory.Address()+uint64(e.Memory.Size())-99, e.Memory.Handle(), 100)
		}, true, true},
		{"before the start", func(e *End, d *via.Descriptor) error { return d.AddData(e.Memory.Address()-1, e.Memory.Handle(), 100) }, true, true},
		{"around the end of the address space", func(e *End, d *via.Descriptor) error { return d.AddData(1<<64-50, e.Memory.Handle(), 100) }, true, true},
	}
	for _, level := range []via.Reliability{via.ReliableDelivery, via.Unreliable} {
		for _, c := range cases {
			w.part(level.String()+"/"+c.name, func(w *World) {
				x, y := w.Connect(Setup{Attributes: via.VIAttributes{Reliability: level}})
				if c.send {
					// A reliable send is looked at when there is a receive for it.
					OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 100)))
					x.Send[0].Prepare()
					OK(w, c.segment(x, x.Send[0]))
					OK(w, x.VI.PostSend(x.Send[0]))
					d, err := w.Take(x.VI.SendDone)
					wantStatus(w, "send", d, err, via.StatusProtectionError)
					wantBroken(w, x, y, level)
				}
				if c.recv {
					x, y = w.Connect(Setup{Attributes: via.VIAttributes{Reliability: level}})
					x.Recv[0].Prepare()
					OK(w, c.segment(x, x.Recv[0]))
					OK(w, x.VI.PostRecv(x.Recv[0]))
					d, err := receiveSome(w, y, x)
					wantStatus(w, "receive", d, err, via.StatusProtectionError)
					wantBroken(w, x, y, level)
				}
			})
		}
	}
	exchange(w, bystanderA, bystanderB, 5000, 1)

	x, y := w.Connect(Setup{})
	x.Send[0].Prepare()
	OK(w, readOnly.AddTo(x.Send[0], 0, 100))
	OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 100)))
	OK(w, x.VI.PostSend(x.Send[0]))
	w.MustTake(y.VI.RecvDone)
	w.MustTake(x.VI.SendDone)

	strange := Must(foreign.NewDescriptor(1024, 0))(w)
	wantError(w, "descriptor of another ptag", x.VI.PostSend(strange), via.ErrInvalidPtag)
	strange = Must(other.NewDescriptor(1024, 0))(w)
	// Its handle may be that of other memory here, so that the code differs.
	if err := x.VI.PostSend(strange); !errors.Is(err, via.ErrInvalidParameter) && !errors.Is(err, via.ErrInvalidPtag) {
		w.Errorf("descriptor of another NIC: error %v", err)
	}
	exchange(w, x, y, 100, 2)
}

// receiveSome sends messages of 100 bytes from one end until the other has
// received one, well or badly: an unreliable wire may lose some.
func receiveSome(w *World, from, to *End) (d *via.Descriptor, err error) {
	w.Helper()
	OK(w, from.VI.PostSend(from.Prepare(w, from.Send[0], 0, 100)))
	w.Until("a receive", func() bool {
		if from.VI.Attributes().Reliability == via.Unreliable {
			if _, err := from.VI.SendDone(); err == nil {
				OK(w, from.VI.PostSend(from.Prepare(w, from.Send[0], 0, 100)))
			}
		}
		d, err = to.VI.RecvDone()
		return err != via.ErrNotDone
	})
	return d, err
}

// wantBroken checks what an error has done to a connection: broken it on
// reliable VIs, nothing on unreliable ones.
func wantBroken(w *World, x, y *End, level via.Reliability) {
	w.Helper()
	if level == via.Unreliable {
		wantState(w, x.VI, via.Connected)
		wantState(w, y.VI, via.Connected)
		return
	}
	for _, e := range []*End{x, y} {
		w.Until("the connection to break", func() bool {
			return Must(e.VI.Query(Context(w)))(w).State == via.ErrorState
		})
	}
}

// testStaleHandle posts a send from memory that is gone when it can go out. Its bytes are
// registered again under so many handles that its place in the NIC's table is in use again.
func testStaleHandle(w *World) {
	ctx := Context(w)
	x, y := w.Connect(Setup{})
	keep := Must(w.A.Alloc(ctx, 4096, via.MemoryAttributes{}))(w)
	register := func() *via.Memory { return Must(w.A.Register(ctx, keep.Bytes(), via.MemoryAttributes{}))(w) }
	m := register()
	x.Send[0].Prepare()
	OK(w, m.AddTo(x.Send[0], 0, 100))
	OK(w, x.VI.PostSend(x.Send[0])) // waits: there is no receive for it
	w.A.Poll()
	w.B.Poll()
	// A NIC may let places rest before it uses them again; ours has 256 that do.
	others := make([]*via.Memory, min(320, w.A.Query().MaxRegions/2))
	for i := range others {
		others[i] = register()
	}
	OK(w, m.Close(ctx))
	for _, o := range others {
		OK(w, o.Close(ctx))
	}
	for range others {
		// It may get the number of the old handle, but never all of it.
		if o := register(); o.Handle() == m.Handle() {
			w.Errorf("handle %#x was given out again", m.Handle())
		}
	}
	OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 100)))
	d, err := w.Take(x.VI.SendDone)
	wantStatus(w, "send from memory that has gone", d, err, via.StatusProtectionError)
	wantBroken(w, x, y, via.ReliableDelivery)
}

// testTakenFromReceive takes memory away from a receive that waits, after the NIC had time to
// fetch it: the message is refused, and nothing is written, not to what comes before that memory
// either.
func testTakenFromReceive(w *World) {
	const size, before = 1000, 100
	ctx := Context(w)
	keep := Must(w.B.Alloc(ctx, size, via.MemoryAttributes{}))(w)
	for _, front := range []int{0, before} {
		for _, level := range []via.Reliability{via.ReliableDelivery, via.ReliableReception} {
			x, y := w.Connect(Setup{Attributes: via.VIAttributes{Reliability: level}, Segments: 2})
			m := Must(w.B.Register(ctx, keep.Bytes(), via.MemoryAttributes{}))(w)
			y.Recv[0].Prepare()
			if front > 0 {
				y.Prepare(w, y.Recv[0], 0, front)
			}
			OK(w, m.AddTo(y.Recv[0], 0, size))
			OK(w, y.VI.PostRecv(y.Recv[0]))
			for range 100 { // it fetches when there is nothing else to do
				w.A.Poll()
				w.B.Poll()
			}
			OK(w, m.Close(ctx))
			pattern(x.Memory.Bytes()[:front+size], 1)
			OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, front+size)))
			d, err := w.Take(y.VI.RecvDone)
			wantStatus(w, "a receive whose memory is gone", d, err, via.StatusProtectionError)
			d, err = w.Take(x.VI.SendDone)
			wantStatus(w, "its message", d, err, via.StatusRemoteDescriptor)
			if !bytes.Equal(keep.Bytes(), make([]byte, size)) || !bytes.Equal(y.Memory.Bytes()[:front], make([]byte, front)) {
				w.Fatal("memory was written after some of it had been taken away")
			}
		}
	}
}
