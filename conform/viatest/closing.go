package viatest

import (
	"context"
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

func testUseAfterClose(t T, p *Pair) {
	ctx := Context(t)
	x, y := p.Connect(t, Setup{})
	tag := Must(p.A.CreatePtag(ctx))(t)
	cq := Must(p.A.CreateCQ(ctx, 8))(t)
	free := Must(p.A.CreateVI(ctx, via.VIAttributes{}, nil, nil))(t)
	// Nobody answers a request that a closed NIC had taken.
	dialling, hangUp := context.WithCancel(ctx)
	defer hangUp()
	c, outcome := dial(dialling, t, NewEnd(t, p.B, Setup{}).VI, p.A)
	OK(t, x.VI.PostRecv(x.Prepare(t, x.Recv[0], 0, 10)))
	OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 10)))
	OK(t, p.A.Close())

	errs := map[string]error{
		"close":        p.A.Close(),
		"post send":    x.VI.PostSend(x.Send[1]),
		"post receive": x.VI.PostRecv(x.Recv[1]),
		"disconnect":   x.VI.Disconnect(ctx),
		"destroy VI":   free.Destroy(ctx),
		"destroy CQ":   cq.Destroy(ctx),
		"destroy ptag": tag.Destroy(ctx),
		"deregister":   x.Memory.Deregister(ctx),
		"add segment":  x.Memory.AddTo(x.Send[1], 0, 1),
		"reject":       c.Reject(ctx),
	}
	_, errs["send done"] = x.VI.SendDone()
	_, errs["receive done"] = x.VI.RecvDone()
	_, errs["sends done"] = x.VI.SendDoneBatch(x.Send[1:3])
	_, errs["receives done"] = x.VI.RecvDoneBatch(x.Recv[1:3])
	_, errs["send wait"] = x.VI.SendWait(ctx)
	_, errs["receive wait"] = x.VI.RecvWait(ctx)
	_, errs["post sends"] = x.VI.PostSendBatch(x.Send[1:3])
	_, errs["post receives"] = x.VI.PostRecvBatch(x.Recv[1:3])
	errs["notice of sends"] = x.VI.NotifySend(func(*via.Descriptor, error) {})
	errs["notice of a CQ"] = cq.Notify(func(via.Completion, error) {})
	errs["arm CQ"] = cq.Arm()
	errs["resize CQ"] = cq.Resize(ctx, 16)
	errs["set VI attributes"] = free.SetAttributes(ctx, via.VIAttributes{})
	errs["set memory attributes"] = x.Memory.SetAttributes(ctx, via.MemoryAttributes{})
	_, errs["descriptor of a CQ"] = cq.FD()
	_, errs["CQ done"] = cq.Done()
	_, errs["CQ wait"] = cq.Wait(ctx)
	_, errs["query VI"] = x.VI.Query(ctx)
	_, errs["new descriptors"] = x.VI.NewDescriptors(ctx, 1, 1)
	_, errs["new descriptor"] = x.Memory.NewDescriptor(0, 1)
	_, errs["accept"] = c.Accept(ctx, free)
	_, errs["connect"] = free.ConnectRequest(ctx, via.Address{}, nil)
	_, errs["connect wait"] = p.A.ConnectWait(ctx, nil)
	_, errs["create VI"] = p.A.CreateVI(ctx, via.VIAttributes{}, nil, nil)
	_, errs["create CQ"] = p.A.CreateCQ(ctx, 8)
	_, errs["create ptag"] = p.A.CreatePtag(ctx)
	_, errs["allocate"] = p.A.Alloc(ctx, 8, via.MemoryAttributes{})
	_, errs["register"] = p.A.Register(ctx, make([]byte, 8), via.MemoryAttributes{})
	for what, err := range errs {
		WantError(t, what, err, via.ErrClosed, via.ErrInvalidParameter)
	}
	if p.A.Poll() {
		t.Error("a closed NIC makes progress")
	}
	if x.Memory.Bytes() != nil {
		t.Error("memory of a closed NIC can be reached")
	}
	// The other NIC noticed, and works.
	p.Until(t, "the other end to notice", func() bool {
		return Must(y.VI.Query(Context(t)))(t).State == via.ErrorState
	})
	// Nobody answers, or a station that is still on the wire says until the client gives up
	// that nobody waits there.
	hangUp()
	if err := <-outcome; !errors.Is(err, via.ErrTimeout) && !errors.Is(err, context.Canceled) {
		t.Errorf("request to a closed NIC: %v", err)
	}
	OK(t, y.VI.Disconnect(ctx))
	OK(t, p.B.Close())
}

// testCloseWakes closes a NIC under everybody who waits on it.
func testCloseWakes(t T, p *Pair) {
	ctx := Context(t)
	x, _ := p.Connect(t, Setup{})
	cq := Must(p.A.CreateCQ(ctx, 8))(t)
	pending := NewEnd(t, p.A, Setup{})
	OK(t, x.VI.PostRecv(x.Recv[0]))
	OK(t, x.VI.PostSend(x.Send[0])) // nobody receives it
	waits := map[string]func() error{
		"receive": func() error { _, err := x.VI.RecvWait(ctx); return err },
		"send":    func() error { _, err := x.VI.SendWait(ctx); return err },
		"CQ":      func() error { _, err := cq.Wait(ctx); return err },
		"server":  func() error { _, err := p.A.ConnectWait(ctx, []byte("never")); return err },
		"client": func() error {
			_, err := pending.VI.ConnectRequest(ctx, via.Address{MAC: p.B.Query().Address, Discriminator: []byte("held")}, nil)
			return err
		},
	}
	// The client's request is taken, and never answered.
	held := make(chan error, 1)
	go func() { _, err := p.B.ConnectWait(ctx, []byte("held")); held <- err }()
	type outcome struct {
		what string
		err  error
	}
	done := make(chan outcome, len(waits))
	for what, wait := range waits {
		go func() { done <- outcome{what, wait()} }()
	}
	time.Sleep(30 * time.Millisecond) // so that most of them sleep
	OK(t, p.A.Close())
	for range waits {
		o := <-done
		if o.what == "client" && o.err != nil {
			continue // it may have been too early for the server
		}
		WantError(t, o.what, o.err, via.ErrClosed)
	}
	OK(t, p.B.Close())
	<-held
}

// testConcurrentClose closes both NICs while goroutines poll and post.
func testConcurrentClose(t T, p *Pair) {
	ctx, cancel := context.WithCancel(Context(t))
	defer cancel()
	x, y := p.Connect(t, Setup{})
	running := make(chan error, 4)
	for _, e := range []*End{x, y} {
		for _, q := range []struct {
			post func(*via.Descriptor) error
			done func() (*via.Descriptor, error)
			d    *via.Descriptor
		}{
			{e.VI.PostSend, e.VI.SendDone, e.Send[0]},
			{e.VI.PostRecv, e.VI.RecvDone, e.Recv[0]},
		} {
			go func() {
				// The status of a completed descriptor stays, so that posts of it
				// are refused from then on: nothing here writes to memory that a
				// Close may have unmapped.
				var err error
				for ctx.Err() == nil && !isClosed(err) {
					_ = q.post(q.d)
					_, err = q.done()
				}
				running <- err
			}()
		}
	}
	time.Sleep(10 * time.Millisecond)
	errs := make(chan error, 4)
	for _, nic := range []*via.NIC{p.A, p.B, p.A, p.B} {
		go func() { errs <- nic.Close() }()
	}
	failed := 0
	for range 4 {
		if err := <-errs; err != nil {
			WantError(t, "second close", err, via.ErrClosed)
			failed++
		}
	}
	if failed != 2 {
		t.Errorf("%d of 4 closes failed, want 2", failed)
	}
	for range 4 {
		WantError(t, "poll", <-running, via.ErrClosed)
	}
}
