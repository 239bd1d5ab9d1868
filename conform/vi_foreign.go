package conform

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/via"
)

// foreign maps memory of the program's own, until the test ends.
func foreign(t T, size int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Munmap(b); err != nil {
			t.Error(err)
		}
	})
	return b
}

// elsewhere reports whether a NIC is in another process, which cannot have memory of
// this one's own.
func elsewhere(n *via.NIC) bool { return n.Query().Backend == "vfio-user" }

// testForeignMemory sends and receives in memory that is not the NIC's, from within
// pages and across them, with descriptors in it too.
func testForeignMemory(w *World) {
	ctx := Context(w)
	page := os.Getpagesize()
	from, to := foreign(w, 8*page), foreign(w, 8*page)
	if elsewhere(w.A) {
		_, err := w.A.Register(ctx, from, via.MemoryAttributes{})
		wantError(w, "memory that the other process has no file of", err, via.ErrNotSupported)
		x, y := w.Connect(Setup{})
		exchange(w, x, y, 100, 1)
		return
	}
	for i := range from {
		from[i] = byte(i ^ i>>8)
	}
	source := Must(w.A.Register(ctx, from[100:5*page+200], via.MemoryAttributes{}))(w)
	again := Must(w.A.Register(ctx, from[page:6*page], via.MemoryAttributes{ReadOnly: true}))(w)
	target := Must(w.B.Register(ctx, to[10:], via.MemoryAttributes{}))(w)
	if source.Handle() == again.Handle() || again.Address() != source.Address()-100+uint64(page) || source.Size() != 5*page+100 {
		w.Errorf("%d bytes at %#x and %d at %#x", source.Size(), source.Address(), again.Size(), again.Address())
	}
	x, y := w.Connect(Setup{})
	send := func(m *via.Memory, offset, length int) (d *via.Descriptor, err error) {
		w.Helper()
		clear(to)
		y.Recv[0].Prepare()
		OK(w, target.AddTo(y.Recv[0], 77, length))
		OK(w, y.VI.PostRecv(y.Recv[0]))
		x.Send[0].Prepare()
		OK(w, m.AddTo(x.Send[0], offset, length))
		OK(w, x.VI.PostSend(x.Send[0]))
		return w.Take(y.VI.RecvDone)
	}
	for _, c := range []struct {
		m              *via.Memory
		offset, length int
		at             int // in from
	}{
		{source, 0, 1, 100}, {source, page - 200, 300, page - 100}, {source, 0, 5*page + 100, 100},
		{again, 0, 5 * page, page}, {again, 3, 2 * page, page + 3},
	} {
		Must(send(c.m, c.offset, c.length))(w)
		w.MustTake(x.VI.SendDone)
		if !bytes.Equal(to[87:87+c.length], from[c.at:c.at+c.length]) || bytes.Count(to, []byte{0}) < len(to)-c.length {
			w.Errorf("%d bytes at %d: they differ, or more was written", c.length, c.offset)
		}
	}

	// The pages stay for the other registration; the first handle is worth nothing.
	OK(w, source.Close(ctx))
	if source.Bytes() != nil {
		w.Error("bytes of deregistered memory")
	}
	Must(send(again, 0, page))(w)
	w.MustTake(x.VI.SendDone)
	if !bytes.Equal(to[87:87+page], from[page:2*page]) {
		w.Error("memory that is still registered: what was received differs")
	}

	// A descriptor may lie there too.
	own := Must(w.B.Register(ctx, to[:page], via.MemoryAttributes{}))(w)
	d := Must(own.NewDescriptor(64, 1))(w)
	OK(w, own.AddTo(d, 1024, 100))
	OK(w, y.VI.PostRecv(d))
	wantError(w, "deregister posted descriptors", own.Close(ctx), via.ErrResource)
	OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 100)))
	if got := w.MustTake(y.VI.RecvDone); got != d || d.Length() != 100 {
		w.Errorf("got back descriptor %p with %d bytes, want %p", got, d.Length(), d)
	}
	w.MustTake(x.VI.SendDone)

	// Bounds are those of the registration, not of its pages.
	x.Send[0].Prepare()
	OK(w, x.Send[0].AddData(again.Address()+uint64(again.Size())-9, again.Handle(), 10))
	OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 100)))
	OK(w, x.VI.PostSend(x.Send[0]))
	d, err := w.Take(x.VI.SendDone)
	wantStatus(w, "send from behind the registration", d, err, via.StatusProtectionError)
	for _, m := range []*via.Memory{again, target, own} {
		OK(w, m.Close(ctx))
	}
	_ = from[0] // the memory is the program's
}
