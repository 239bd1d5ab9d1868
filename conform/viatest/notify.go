package viatest

import (
	"errors"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/via"
)

// testNotify has handlers called for descriptors of both queues: each once, in order,
// also those that were asked for before anything was posted.
func testNotify(t T, p *Pair) {
	const n = 20
	ctx := Context(t)
	x, y := p.Connect(t, Setup{})
	WantError(t, "no send handler", x.VI.NotifySend(nil), via.ErrInvalidParameter)
	WantError(t, "no receive handler", x.VI.NotifyRecv(nil), via.ErrInvalidParameter)

	received, sent := make(chan uint32, n), make(chan *via.Descriptor, n)
	handle := func(f func(d *via.Descriptor)) func(*via.Descriptor, error) {
		return func(d *via.Descriptor, err error) {
			if err != nil {
				t.Errorf("handler: %v", err)
				return
			}
			f(d)
		}
	}
	var inside atomic.Int32
	for range n {
		OK(t, y.VI.NotifyRecv(handle(func(d *via.Descriptor) {
			if inside.Add(1) != 1 {
				t.Error("two handlers at a time")
			}
			v, _ := d.Immediate()
			inside.Add(-1)
			received <- v
		})))
		OK(t, x.VI.NotifySend(handle(func(d *via.Descriptor) { sent <- d })))
	}
	for i := range n {
		OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[i], 0, 8)))
	}
	for i := range n {
		d := x.Prepare(t, x.Send[i], 0, 8)
		d.SetImmediate(uint32(i))
		OK(t, x.VI.PostSend(d))
	}
	for i := range n {
		select {
		case got := <-received:
			if got != uint32(i) {
				t.Fatalf("notice %d is of message %d", i, got)
			}
		case <-ctx.Done():
			t.Fatal("a notice of a receive is missing")
		}
		select {
		case d := <-sent:
			if d != x.Send[i] {
				t.Fatalf("notice %d of a send is of another descriptor", i)
			}
		case <-ctx.Done():
			t.Fatal("a notice of a send is missing")
		}
	}

	// One-shot: what comes next is for RecvDone. A handler may call anything, and ask
	// for the next notice.
	exchange(t, p, x, y, 100, 1)
	again := make(chan error, 2)
	var handler func(d *via.Descriptor, err error)
	handler = func(d *via.Descriptor, err error) {
		if err == nil && len(again) == 0 {
			err = errors.Join(y.VI.NotifyRecv(handler), y.VI.PostRecv(y.Prepare(t, d, 0, 8)))
		}
		again <- err
	}
	OK(t, y.VI.NotifyRecv(handler))
	OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 8)))
	for range 2 {
		OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 8)))
		p.MustTake(t, x.VI.SendDone)
		p.Until(t, "a handler that posts again", func() bool { return len(again) > 0 })
		OK(t, <-again)
	}

	// An error is the handler's too, with the descriptor.
	flushed := make(chan error, 1)
	OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[1], 0, 8)))
	OK(t, y.VI.NotifyRecv(func(d *via.Descriptor, err error) {
		if d != y.Recv[1] {
			t.Error("the handler got another descriptor")
		}
		flushed <- err
	}))
	OK(t, x.VI.Disconnect(ctx))
	WantError(t, "notice of a flushed receive", <-flushed, via.ErrDescriptor, via.ErrDisconnected)
}

// testNotifyCanceled destroys VIs and CQs, and closes a NIC, whose handlers wait.
func testNotifyCanceled(t T, p *Pair) {
	ctx := Context(t)
	var called atomic.Int32
	onDescriptor := func(*via.Descriptor, error) { called.Add(1) }
	onCompletion := func(via.Completion, error) { called.Add(1) }
	for range 10 {
		e := NewEnd(t, p.A, Setup{})
		cq := Must(p.A.CreateCQ(ctx, 256))(t)
		tied := Must(p.A.CreateVI(ctx, via.VIAttributes{}, cq, cq))(t)
		WantError(t, "notice of a send queue with a CQ", tied.NotifySend(onDescriptor), via.ErrInvalidState)
		WantError(t, "notice of a receive queue with a CQ", tied.NotifyRecv(onDescriptor), via.ErrInvalidState)
		WantError(t, "no handler", cq.Notify(nil), via.ErrInvalidParameter)
		for range 3 {
			OK(t, e.VI.NotifySend(onDescriptor))
			OK(t, e.VI.NotifyRecv(onDescriptor))
			OK(t, cq.Notify(onCompletion))
		}
		WantError(t, "destroy a CQ in use", cq.Destroy(ctx), via.ErrResource)
		OK(t, cq.Notify(onCompletion)) // it is as before
		OK(t, e.VI.Destroy(ctx))
		OK(t, tied.Destroy(ctx))
		OK(t, cq.Destroy(ctx))
		WantError(t, "notice of a destroyed VI", e.VI.NotifyRecv(onDescriptor), via.ErrClosed)
		WantError(t, "notice of a destroyed CQ", cq.Notify(onCompletion), via.ErrClosed)
		WantError(t, "arm a destroyed CQ", cq.Arm(), via.ErrClosed)
		_, err := cq.FD()
		WantError(t, "descriptor of a destroyed CQ", err, via.ErrClosed)
	}
	// At the same time: the handler is called, or never.
	for range 20 {
		x, y := p.Connect(t, Setup{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 50 {
				if err := y.VI.NotifyRecv(func(*via.Descriptor, error) {}); err != nil {
					WantError(t, "notice", err, via.ErrClosed)
					return
				}
			}
		})
		OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 8)))
		OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 8)))
		OK(t, y.VI.Disconnect(ctx))
		p.Until(t, "the VI to be destroyed", func() bool {
			_, _ = y.VI.RecvDone()
			err := y.VI.Destroy(ctx)
			if err != nil && !errors.Is(err, via.ErrResource) && !errors.Is(err, via.ErrInvalidState) {
				t.Error(err)
			}
			return err == nil
		})
		wg.Wait()
		OK(t, x.VI.Disconnect(ctx))
		p.Until(t, "the sender to be empty", func() bool { _, err := x.VI.SendDone(); return err == via.ErrQueueEmpty })
		OK(t, x.VI.Destroy(ctx))
	}
	e := NewEnd(t, p.A, Setup{})
	OK(t, e.VI.NotifyRecv(onDescriptor))
	OK(t, p.A.Close())
	if n := called.Load(); n != 0 {
		t.Errorf("%d handlers were called for nothing", n)
	}
}

// testCQNotify has handlers called for completions of several VIs.
func testCQNotify(t T, p *Pair) {
	const n = 10
	ctx := Context(t)
	cq := Must(p.B.CreateCQ(ctx, 512))(t)
	x := []*End{NewEnd(t, p.A, Setup{}), NewEnd(t, p.A, Setup{})}
	var y []*End
	for i := range x {
		y = append(y, Must(Equip(ctx, Must(p.B.CreateVI(ctx, via.VIAttributes{}, cq, cq))(t), 4096, 1))(t))
		OK(t, ConnectVIs(ctx, x[i].VI, y[i].VI, t.Name()))
	}
	got := make(chan via.Completion, 2*n)
	for range 2 * n {
		OK(t, cq.Notify(func(c via.Completion, err error) {
			if err != nil {
				t.Errorf("handler: %v", err)
			}
			got <- c
		}))
	}
	for i := range n {
		for k := range x {
			OK(t, y[k].VI.PostRecv(y[k].Prepare(t, y[k].Recv[i], 0, 8)))
			OK(t, x[k].VI.PostSend(x[k].Prepare(t, x[k].Send[i], 0, 8)))
			p.MustTake(t, x[k].VI.SendDone)
		}
	}
	counts := map[*via.VI]int{}
	for range 2 * n {
		select {
		case c := <-got:
			if c.Queue != via.RecvQueue {
				t.Fatalf("completion %+v", c)
			}
			counts[c.VI]++
			Must(c.VI.RecvDone())(t)
		case <-ctx.Done():
			t.Fatal("a notice is missing")
		}
	}
	if counts[y[0].VI] != n || counts[y[1].VI] != n {
		t.Errorf("notices %v", counts)
	}
	// Nobody is called any more.
	OK(t, y[0].VI.PostRecv(y[0].Prepare(t, y[0].Recv[0], 0, 8)))
	OK(t, x[0].VI.PostSend(x[0].Prepare(t, x[0].Send[0], 0, 8)))
	p.MustTake(t, x[0].VI.SendDone)
	p.Until(t, "a completion that nobody was told", func() bool { _, err := cq.Done(); return err == nil })
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
func testCQDescriptor(t T, p *Pair) {
	ctx := Context(t)
	cq := Must(p.B.CreateCQ(ctx, 256))(t)
	WantError(t, "arm before there is a descriptor", cq.Arm(), via.ErrInvalidState)
	fd := Must(cq.FD())(t)
	if again := Must(cq.FD())(t); again != fd {
		t.Errorf("descriptors %d and %d", fd, again)
	}
	x := NewEnd(t, p.A, Setup{})
	y := Must(Equip(ctx, Must(p.B.CreateVI(ctx, via.VIAttributes{}, cq, cq))(t), 4096, 1))(t)
	OK(t, ConnectVIs(ctx, x.VI, y.VI, t.Name()))
	send := func() {
		t.Helper()
		OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 8)))
		OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 8)))
		p.MustTake(t, x.VI.SendDone)
	}
	take := func() {
		t.Helper()
		p.Until(t, "a completion", func() bool { _, err := cq.Done(); return err == nil })
		Must(y.VI.RecvDone())(t)
	}
	read := func() {
		t.Helper()
		var b [8]byte
		if n, err := unix.Read(fd, b[:]); n != 8 || err != nil {
			t.Fatalf("read %d bytes: %v", n, err)
		}
	}
	send() // nobody has asked
	if readable(t, fd, 0) {
		t.Error("readable without being armed")
	}
	for i := range 3 {
		if i > 0 {
			take()
			OK(t, cq.Arm())
			OK(t, cq.Arm()) // does nothing
			if readable(t, fd, 5) {
				t.Fatal("readable with nothing to take")
			}
			send()
		} else {
			OK(t, cq.Arm()) // there is something already
		}
		if !readable(t, fd, int(Patience.Milliseconds())) {
			t.Fatal("a completion does not make it readable")
		}
		read()
		if readable(t, fd, 0) {
			t.Error("readable twice")
		}
	}
	take()
	// One who waits in poll wakes in the end, whatever is in between.
	OK(t, cq.Arm())
	OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 8)))
	var wg sync.WaitGroup
	wg.Go(func() {
		if !readable(t, fd, int(Patience.Milliseconds())) {
			t.Error("poll has not returned")
		}
	})
	OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 8)))
	p.MustTake(t, x.VI.SendDone)
	wg.Wait()
	read()
	take()
	OK(t, cq.Arm())
	for _, e := range []*End{x, y} {
		OK(t, e.VI.Disconnect(ctx))
		OK(t, e.VI.Destroy(ctx))
	}
	OK(t, cq.Destroy(ctx)) // armed
}
