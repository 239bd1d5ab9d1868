package conform

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

func testUseAfterClose(w *World) {
	ctx := Context(w)
	x, y := w.Connect(Setup{})
	tag := Must(w.A.CreatePtag(ctx))(w)
	cq := Must(w.A.CreateCQ(ctx, 8))(w)
	free := Must(w.A.CreateVI(ctx, via.VIAttributes{}, nil, nil))(w)
	// A request that a closed NIC had taken stays without an answer.
	dialling, hangUp := context.WithCancel(ctx)
	defer hangUp()
	c, outcome := dial(dialling, w, NewEnd(w, w.B, Setup{}).VI, w.A)
	OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 0, 10)))
	OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 10)))
	OK(w, w.A.Close())
	for what, again := range map[string]error{"NIC": w.A.Close(), "VI": free.Close(ctx), "CQ": cq.Close(ctx), "ptag": tag.Close(ctx), "memory": x.Memory.Close(ctx)} {
		if again != nil {
			w.Errorf("closing the %s again: %v", what, again)
		}
	}

	errs := map[string]error{
		"post send":    x.VI.PostSend(x.Send[1]),
		"post receive": x.VI.PostRecv(x.Recv[1]),
		"disconnect":   x.VI.Disconnect(ctx),
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
	_, errs["connect"] = free.ConnectRequest(ctx, via.Address{}, "")
	_, errs["connect wait"] = w.A.ConnectWait(ctx, "")
	_, errs["create VI"] = w.A.CreateVI(ctx, via.VIAttributes{}, nil, nil)
	_, errs["create CQ"] = w.A.CreateCQ(ctx, 8)
	_, errs["create ptag"] = w.A.CreatePtag(ctx)
	_, errs["allocate"] = w.A.Alloc(ctx, 8, via.MemoryAttributes{})
	_, errs["register"] = w.A.Register(ctx, make([]byte, 8), via.MemoryAttributes{})
	for what, err := range errs {
		wantError(w, what, err, via.ErrClosed, via.ErrInvalidParameter, net.ErrClosed)
	}
	if w.A.Poll() {
		w.Error("a closed NIC makes progress")
	}
	if x.Memory.Bytes() != nil {
		w.Error("memory of a closed NIC can be reached")
	}
	// The other NIC noticed, and works.
	w.Until("the other end to notice", func() bool {
		return Must(y.VI.Query(Context(w)))(w).State == via.ErrorState
	})
	// There is no answer, or until the client gives up a station that is still on the wire says
	// that no server waits.
	hangUp()
	if err := <-outcome; !errors.Is(err, via.ErrTimeout) && !errors.Is(err, context.Canceled) {
		w.Errorf("request to a closed NIC: %v", err)
	}
	OK(w, y.VI.Disconnect(ctx))
	OK(w, w.B.Close())
}

// testCloseWakes closes a NIC under all calls that wait on it.
func testCloseWakes(w *World) {
	ctx := Context(w)
	x, _ := w.Connect(Setup{})
	cq := Must(w.A.CreateCQ(ctx, 8))(w)
	pending := NewEnd(w, w.A, Setup{})
	OK(w, x.VI.PostRecv(x.Recv[0]))
	OK(w, x.VI.PostSend(x.Send[0])) // it is never received
	waits := map[string]func() error{
		"receive": func() error { _, err := x.VI.RecvWait(ctx); return err },
		"send":    func() error { _, err := x.VI.SendWait(ctx); return err },
		"CQ":      func() error { _, err := cq.Wait(ctx); return err },
		"server":  func() error { _, err := w.A.ConnectWait(ctx, "never"); return err },
		"client": func() error {
			_, err := pending.VI.ConnectRequest(ctx, via.Address{MAC: w.B.Query().Address, Discriminator: "held"}, "")
			return err
		},
	}
	// The client's request is taken, and never answered.
	held := make(chan error, 1)
	go func() { _, err := w.B.ConnectWait(ctx, "held"); held <- err }()
	type outcome struct {
		what string
		err  error
	}
	done := make(chan outcome, len(waits))
	for what, wait := range waits {
		go func() { done <- outcome{what, wait()} }()
	}
	time.Sleep(30 * time.Millisecond) // so that most of them sleep
	OK(w, w.A.Close())
	for range waits {
		o := <-done
		if o.what == "client" && o.err != nil {
			continue // it may have been too early for the server
		}
		wantError(w, o.what, o.err, via.ErrClosed)
	}
	OK(w, w.B.Close())
	<-held
}

// testConcurrentClose closes both NICs while goroutines poll and post.
func testConcurrentClose(w *World) {
	ctx, cancel := context.WithCancel(Context(w))
	defer cancel()
	x, y := w.Connect(Setup{})
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
	for _, nic := range []*via.NIC{w.A, w.B, w.A, w.B} {
		go func() { errs <- nic.Close() }()
	}
	for range 4 {
		OK(w, <-errs)
	}
	for range 4 {
		wantError(w, "poll", <-running, via.ErrClosed)
	}
}
