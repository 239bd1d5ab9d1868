package conform

import (
	"bytes"
	"errors"

	"github.com/trapeze-nic/trapeze/via"
)

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
	OK(w, x.VI.PostSend(describe(w, x.Send[0], m, 0, 100))) // waits: there is no receive for it
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

// testEagerReceive receives into memory whose messages land in the NIC's copy, which writes them back or holds them, and into
// memory for which the NIC has no room. The program has all bytes by the read path, sends them on, and has them in memory
// once the registration ends.
func testEagerReceive(w *World) {
	const size = 16 << 10
	ctx := Context(w)
	x, y := w.Connect(Setup{})
	room, err := w.B.EagerStats()
	if errors.Is(err, via.ErrNotSupported) {
		w.Skip("the NIC has no eager memory")
	}
	OK(w, err)
	tooMuch := int(room.FreeSRAM) + size
	keep := Must(w.B.Alloc(ctx, tooMuch, via.MemoryAttributes{}))(w)
	for _, c := range []struct {
		way  via.EagerReceive
		size int
	}{{via.EagerWriteBack, size}, {via.EagerHold, size}, {via.EagerHold, tooMuch}} {
		b := keep.Bytes()[:c.size]
		clear(b[:size])
		m := Must(w.B.Register(ctx, b, via.MemoryAttributes{Eager: via.EagerAttributes{Mode: via.EagerWritten, Receive: c.way, NoRoom: via.NoRoomOrdinary}}))(w)
		before := Must(w.B.EagerStats())(w)
		if roomy := c.size == size; m.IsEager() != roomy || !roomy && before.FellBack == 0 {
			w.Fatalf("%d bytes are eager: %v, %d fell back", c.size, m.IsEager(), before.FellBack)
		}
		want := make([]byte, size)
		for i, n := range []int{1024, 1, 64, 100, 8000, 3000} {
			at, data := 1024+64*i+i/4, x.Memory.Bytes()[:n]
			pattern(data, uint64(i))
			copy(want[at:], data)
			OK(w, y.VI.PostRecv(describe(w, y.Recv[0], m, at, n)))
			OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, n)))
			w.MustTake(y.VI.RecvDone)
			w.MustTake(x.VI.SendDone)
			got := make([]byte, size)
			if _, err := m.Eager().ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
				w.Fatalf("way %d, %d bytes at %d: other bytes are read, %v", c.way, n, at, err)
			}
			holds := m.IsEager() && c.way == via.EagerHold
			if there := bytes.Equal(b[at:at+n], data); !holds && !there || holds && there && n >= 1024 {
				w.Errorf("way %d: memory has the %d bytes: %v", c.way, n, there)
			}
		}
		now := Must(w.B.EagerStats())(w)
		if landed := now.Landed - before.Landed; landed > 0 != m.IsEager() || c.way == via.EagerWriteBack && now.WrittenBack-before.WrittenBack < landed {
			w.Errorf("way %d: before %+v, now %+v", c.way, before, now)
		}
		Must(m.Eager().WriteAt([]byte("changed"), 2000))(w)
		copy(want[2000:], "changed")
		OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 0, size)))
		OK(w, y.VI.PostSend(describe(w, y.Send[0], m, 0, size)))
		w.MustTake(x.VI.RecvDone)
		w.MustTake(y.VI.SendDone)
		if !bytes.Equal(x.Memory.Bytes()[:size], want) {
			w.Errorf("way %d: other bytes were sent on", c.way)
		}
		if OK(w, m.Close(ctx)); !bytes.Equal(b[:size], want) {
			w.Errorf("way %d: memory does not have what was received", c.way)
		}
	}
}
