package conform

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/via"
)

// testNotify has handlers called for descriptors of both queues: each once, in order,
// also those that were asked for before anything was posted.
func testNotify(w *World) {
	const n = 20
	ctx := Context(w)
	x, y := w.Connect(Setup{})
	wantError(w, "no send handler", x.VI.NotifySend(nil), via.ErrInvalidParameter)
	wantError(w, "no receive handler", x.VI.NotifyRecv(nil), via.ErrInvalidParameter)

	received, sent := make(chan uint32, n), make(chan *via.Descriptor, n)
	handle := func(f func(d *via.Descriptor)) func(*via.Descriptor, error) {
		return func(d *via.Descriptor, err error) {
			if err != nil {
				w.Errorf("handler: %v", err)
				return
			}
			f(d)
		}
	}
	var inside atomic.Int32
	for range n {
		OK(w, y.VI.NotifyRecv(handle(func(d *via.Descriptor) {
			if inside.Add(1) != 1 {
				w.Error("two handlers at a time")
			}
			v, _ := d.Immediate()
			inside.Add(-1)
			received <- v
		})))
		OK(w, x.VI.NotifySend(handle(func(d *via.Descriptor) { sent <- d })))
	}
	for i := range n {
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[i], 0, 8)))
	}
	for i := range n {
		d := x.Prepare(w, x.Send[i], 0, 8)
		d.SetImmediate(uint32(i))
		OK(w, x.VI.PostSend(d))
	}
	for i := range n {
		select {
		case got := <-received:
			if got != uint32(i) {
				w.Fatalf("notice %d is of message %d", i, got)
			}
		case <-ctx.Done():
			w.Fatal("a notice of a receive is missing")
		}
		select {
		case d := <-sent:
			if d != x.Send[i] {
				w.Fatalf("notice %d of a send is of another descriptor", i)
			}
		case <-ctx.Done():
			w.Fatal("a notice of a send is missing")
		}
	}

	// One-shot: what comes next is for RecvDone. A handler may call anything, and ask
	// for the next notice.
	exchange(w, x, y, 100, 1)
	again := make(chan error, 2)
	var handler func(d *via.Descriptor, err error)
	handler = func(d *via.Descriptor, err error) {
		if err == nil && len(again) == 0 {
			err = errors.Join(y.VI.NotifyRecv(handler), y.VI.PostRecv(y.Prepare(w, d, 0, 8)))
		}
		again <- err
	}
	OK(w, y.VI.NotifyRecv(handler))
	OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 8)))
	for range 2 {
		OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 8)))
		w.MustTake(x.VI.SendDone)
		w.Until("a handler that posts again", func() bool { return len(again) > 0 })
		OK(w, <-again)
	}

	// An error is the handler's too, with the descriptor.
	flushed := make(chan error, 1)
	OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[1], 0, 8)))
	OK(w, y.VI.NotifyRecv(func(d *via.Descriptor, err error) {
		if d != y.Recv[1] {
			w.Error("the handler got another descriptor")
		}
		flushed <- err
	}))
	OK(w, x.VI.Disconnect(ctx))
	wantError(w, "notice of a flushed receive", <-flushed, via.ErrDescriptor, via.ErrDisconnected)
}

// testNotifyCanceled destroys VIs and CQs, and closes a NIC, whose handlers wait.
func testNotifyCanceled(w *World) {
	ctx := Context(w)
	var called atomic.Int32
	onDescriptor := func(*via.Descriptor, error) { called.Add(1) }
	onCompletion := func(via.Completion, error) { called.Add(1) }
	for range 10 {
		e := NewEnd(w, w.A, Setup{})
		cq := Must(w.A.CreateCQ(ctx, 256))(w)
		tied := Must(w.A.CreateVI(ctx, via.VIAttributes{}, cq, cq))(w)
		wantError(w, "notice of a send queue with a CQ", tied.NotifySend(onDescriptor), via.ErrInvalidState)
		wantError(w, "notice of a receive queue with a CQ", tied.NotifyRecv(onDescriptor), via.ErrInvalidState)
		wantError(w, "no handler", cq.Notify(nil), via.ErrInvalidParameter)
		for range 3 {
			OK(w, e.VI.NotifySend(onDescriptor))
			OK(w, e.VI.NotifyRecv(onDescriptor))
			OK(w, cq.Notify(onCompletion))
		}
		wantError(w, "destroy a CQ in use", cq.Close(ctx), via.ErrResource)
		OK(w, cq.Notify(onCompletion)) // it is as before
		OK(w, e.VI.Close(ctx))
		OK(w, tied.Close(ctx))
		OK(w, cq.Close(ctx))
		wantError(w, "notice of a destroyed VI", e.VI.NotifyRecv(onDescriptor), via.ErrClosed)
		wantError(w, "notice of a destroyed CQ", cq.Notify(onCompletion), via.ErrClosed)
		wantError(w, "arm a destroyed CQ", cq.Arm(), via.ErrClosed)
		_, err := cq.FD()
		wantError(w, "descriptor of a destroyed CQ", err, via.ErrClosed)
	}
	// At the same time: the handler is called, or never.
	for range 20 {
		x, y := w.Connect(Setup{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 50 {
				if err := y.VI.NotifyRecv(func(*via.Descriptor, error) {}); err != nil {
					wantError(w, "notice", err, via.ErrClosed)
					return
				}
			}
		})
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 8)))
		OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 8)))
		OK(w, y.VI.Disconnect(ctx))
		w.Until("the VI to be destroyed", func() bool {
			_, _ = y.VI.RecvDone()
			err := y.VI.Close(ctx)
			if err != nil && !errors.Is(err, via.ErrResource) && !errors.Is(err, via.ErrInvalidState) {
				w.Error(err)
			}
			return err == nil
		})
		wg.Wait()
		OK(w, x.VI.Disconnect(ctx))
		w.Until("the sender to be empty", func() bool { _, err := x.VI.SendDone(); return err == via.ErrQueueEmpty })
		OK(w, x.VI.Close(ctx))
	}
	e := NewEnd(w, w.A, Setup{})
	OK(w, e.VI.NotifyRecv(onDescriptor))
	OK(w, w.A.Close())
	if n := called.Load(); n != 0 {
		w.Errorf("%d handlers were called for nothing", n)
	}
}

// testCQNotify has handlers called for completions of several VIs.
func testCQNotify(w *World) {
	const n = 10
	ctx := Context(w)
	cq := Must(w.B.CreateCQ(ctx, 512))(w)
	x := []*End{NewEnd(w, w.A, Setup{}), NewEnd(w, w.A, Setup{})}
	var y []*End
	for i := range x {
		y = append(y, Must(Equip(ctx, w.B, Must(w.B.CreateVI(ctx, via.VIAttributes{}, cq, cq))(w), 4096, 1))(w))
		OK(w, ConnectVIs(ctx, x[i].VI, y[i].VI, w.Name()))
	}
	got := make(chan via.Completion, 2*n)
	for range 2 * n {
		OK(w, cq.Notify(func(c via.Completion, err error) {
			if err != nil {
				w.Errorf("handler: %v", err)
			}
			got <- c
		}))
	}
	for i := range n {
		for k := range x {
			OK(w, y[k].VI.PostRecv(y[k].Prepare(w, y[k].Recv[i], 0, 8)))
			OK(w, x[k].VI.PostSend(x[k].Prepare(w, x[k].Send[i], 0, 8)))
			w.MustTake(x[k].VI.SendDone)
		}
	}
	counts := map[*via.VI]int{}
	for range 2 * n {
		select {
		case c := <-got:
			if c.Queue != via.RecvQueue {
				w.Fatalf("completion %+v", c)
			}
			counts[c.VI]++
			Must(c.VI.RecvDone())(w)
		case <-ctx.Done():
			w.Fatal("a notice is missing")
		}
	}
	if counts[y[0].VI] != n || counts[y[1].VI] != n {
		w.Errorf("notices %v", counts)
	}
	// No handler is called any more.
	OK(w, y[0].VI.PostRecv(y[0].Prepare(w, y[0].Recv[0], 0, 8)))
	OK(w, x[0].VI.PostSend(x[0].Prepare(w, x[0].Send[0], 0, 8)))
	w.MustTake(x[0].VI.SendDone)
	w.Until("a completion without a notification", func() bool { _, err := cq.Done(); return err == nil })
}

// readable waits until fd is readable, or reports that it is not within ms.
func readable(t T, fd, ms int) bool {
	t.Helper()
	list := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(list, ms)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return n == 1
	}
}

// testCQDescriptor sleeps in poll(2) until there is a completion.
func testCQDescriptor(w *World) {
	ctx := Context(w)
	cq := Must(w.B.CreateCQ(ctx, 256))(w)
	wantError(w, "arm before there is a descriptor", cq.Arm(), via.ErrInvalidState)
	fd := Must(cq.FD())(w)
	if again := Must(cq.FD())(w); again != fd {
		w.Errorf("descriptors %d and %d", fd, again)
	}
	x := NewEnd(w, w.A, Setup{})
	y := Must(Equip(ctx, w.B, Must(w.B.CreateVI(ctx, via.VIAttributes{}, cq, cq))(w), 4096, 1))(w)
	OK(w, ConnectVIs(ctx, x.VI, y.VI, w.Name()))
	send := func() {
		w.Helper()
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 8)))
		OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 8)))
		w.MustTake(x.VI.SendDone)
	}
	take := func() {
		w.Helper()
		w.Until("a completion", func() bool { _, err := cq.Done(); return err == nil })
		Must(y.VI.RecvDone())(w)
	}
	read := func() {
		w.Helper()
		var b [8]byte
		if n, err := unix.Read(fd, b[:]); n != 8 || err != nil {
			w.Fatalf("read %d bytes: %v", n, err)
		}
	}
	send() // no notice was asked for
	if readable(w, fd, 0) {
		w.Error("readable without being armed")
	}
	for i := range 3 {
		if i > 0 {
			take()
			OK(w, cq.Arm())
			OK(w, cq.Arm()) // does nothing
			if readable(w, fd, 5) {
				w.Fatal("readable with nothing to take")
			}
			send()
		} else {
			OK(w, cq.Arm()) // there is something already
		}
		if !readable(w, fd, int(Timeout.Milliseconds())) {
			w.Fatal("a completion does not make it readable")
		}
		read()
		if readable(w, fd, 0) {
			w.Error("readable twice")
		}
	}
	take()
	// One who waits in poll wakes in the end, whatever is in between.
	OK(w, cq.Arm())
	OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 8)))
	var wg sync.WaitGroup
	wg.Go(func() {
		if !readable(w, fd, int(Timeout.Milliseconds())) {
			w.Error("poll has not returned")
		}
	})
	OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 8)))
	w.MustTake(x.VI.SendDone)
	wg.Wait()
	read()
	take()
	OK(w, cq.Arm())
	for _, e := range []*End{x, y} {
		OK(w, e.VI.Disconnect(ctx))
		OK(w, e.VI.Close(ctx))
	}
	OK(w, cq.Close(ctx)) // armed
}
