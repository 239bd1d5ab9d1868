package conform

import (
	"context"

	"github.com/trapeze-nic/trapeze/via"
)

func testVIArguments(w *World) {
	ctx := Context(w)
	a := w.A.Query()
	for _, c := range []struct {
		name string
		a    via.VIAttributes
		want error
	}{
		{"no such level", via.VIAttributes{Reliability: 8}, via.ErrInvalidReliability},
		{"two levels", via.VIAttributes{Reliability: via.Unreliable | via.ReliableDelivery}, via.ErrInvalidReliability},
		{"transfers too large", via.VIAttributes{MaxTransfer: a.MaxTransfer + 1}, via.ErrInvalidMTU},
		{"negative depth", via.VIAttributes{SendDepth: -1}, via.ErrInvalidParameter},
		{"send queue too deep", via.VIAttributes{SendDepth: a.MaxDescriptors + 1}, via.ErrInvalidParameter},
		{"receive queue too deep", via.VIAttributes{RecvDepth: a.MaxDescriptors + 1}, via.ErrInvalidParameter},
	} {
		_, err := w.A.CreateVI(ctx, c.a, nil, nil)
		wantError(w, c.name, err, c.want)
	}
	vi := Must(w.A.CreateVI(ctx, via.VIAttributes{SendDepth: a.MaxDescriptors, RecvDepth: a.MaxDescriptors, MaxTransfer: a.MaxTransfer}, nil, nil))(w)
	s := Must(vi.Query(ctx))(w)
	if s.State != via.Idle || s.Attributes.Reliability != via.ReliableDelivery || s.Attributes.MaxTransfer != a.MaxTransfer {
		w.Errorf("new VI: %+v", s)
	}
	OK(w, vi.Close(ctx))
}

// testRDMARights: VIs get the rights that the NIC has at their level, and no others.
func testRDMARights(w *World) {
	ctx := Context(w)
	a := w.A.Query()
	if (a.RDMAWrite|a.RDMARead)&^a.Reliability != 0 || a.RDMARead&via.Unreliable != 0 {
		w.Errorf("RDMA writes at %v, reads at %v, of a NIC with %v", a.RDMAWrite, a.RDMARead, a.Reliability)
	}
	for _, level := range []via.Reliability{via.Unreliable, via.ReliableDelivery, via.ReliableReception} {
		if a.Reliability&level == 0 {
			continue
		}
		for _, c := range []struct {
			name   string
			a      via.VIAttributes
			has    via.Reliability
			refuse error
		}{
			{"RDMA write", via.VIAttributes{Reliability: level, RDMAWrite: true}, a.RDMAWrite, via.ErrNotSupported},
			{"RDMA read", via.VIAttributes{Reliability: level, RDMARead: true}, a.RDMARead, via.ErrInvalidRDMARead},
		} {
			vi, err := w.A.CreateVI(ctx, c.a, nil, nil)
			if c.has&level == 0 {
				wantError(w, c.name, err, c.refuse)
				continue
			}
			OK(w, err)
			if got := vi.Attributes(); got.RDMAWrite != c.a.RDMAWrite || got.RDMARead != c.a.RDMARead {
				w.Errorf("%s at %v: attributes %+v", c.name, level, got)
			}
			OK(w, vi.Close(ctx))
		}
	}
}

func testDestroy(w *World) {
	ctx := Context(w)
	x, y := w.Connect(Setup{})
	wantError(w, "destroy a connected VI", x.VI.Close(ctx), via.ErrInvalidState)
	exchange(w, x, y, 100, 1)
	OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 0, 10)))
	OK(w, x.VI.Disconnect(ctx))
	wantError(w, "destroy with a descriptor", x.VI.Close(ctx), via.ErrResource)
	if s := Must(x.VI.Query(ctx))(w); s.RecvQueued != 1 {
		w.Errorf("%d receives queued, want 1", s.RecvQueued)
	}
	d, err := w.Take(x.VI.RecvDone)
	wantStatus(w, "receive", d, err, via.StatusFlushed)
	OK(w, x.VI.Close(ctx))
	// From the error state too.
	w.Until("the other end to notice", func() bool {
		return Must(y.VI.Query(Context(w)))(w).State == via.ErrorState
	})
	OK(w, y.VI.Close(ctx))

	OK(w, x.VI.Close(ctx)) // again
	_, err = x.VI.Query(ctx)
	wantError(w, "query", err, via.ErrClosed)
	_, err = x.VI.SendDone()
	wantError(w, "done", err, via.ErrClosed)
	_, err = x.VI.NewDescriptors(ctx, 1, 1)
	wantError(w, "new descriptors", err, via.ErrClosed)
	wantError(w, "disconnect", x.VI.Disconnect(ctx), via.ErrClosed)
	own := Must(x.Memory.NewDescriptor(0, 0))(w)
	wantError(w, "post", x.VI.PostSend(own), via.ErrClosed)

	client := NewEnd(w, w.A, Setup{})
	c, outcome := dial(ctx, w, client.VI, w.B)
	wantError(w, "destroy a VI that connects", client.VI.Close(ctx), via.ErrInvalidState)
	OK(w, c.Reject(ctx))
	wantError(w, "client", <-outcome, via.ErrReject)
}

func testForeign(w *World) {
	ctx := Context(w)
	var none context.Context
	x, y := w.Connect(Setup{})
	tag := Must(w.B.CreatePtag(ctx))(w)
	cq := Must(w.B.CreateCQ(ctx, 256))(w)
	client := NewEnd(w, w.B, Setup{})
	c, outcome := dial(ctx, w, client.VI, w.A)

	errs := map[string]error{
		"post nothing to send":       x.VI.PostSend(nil),
		"post nothing to receive":    x.VI.PostRecv(nil),
		"add to no descriptor":       x.Memory.AddTo(nil, 0, 1),
		"disconnect without context": x.VI.Disconnect(none),
		"destroy without context":    x.VI.Close(none),
	}
	_, errs["memory with a foreign ptag"] = w.A.Alloc(ctx, 64, via.MemoryAttributes{Ptag: tag})
	_, errs["VI with a foreign ptag"] = w.A.CreateVI(ctx, via.VIAttributes{Ptag: tag}, nil, nil)
	_, errs["VI with a foreign send CQ"] = w.A.CreateVI(ctx, via.VIAttributes{}, cq, nil)
	_, errs["VI with a foreign receive CQ"] = w.A.CreateVI(ctx, via.VIAttributes{}, nil, cq)
	_, errs["accept with a foreign VI"] = c.Accept(ctx, client.VI)
	_, errs["accept with no VI"] = c.Accept(ctx, nil)
	_, errs["batch with nothing in it"] = x.VI.PostSendBatch([]*via.Descriptor{x.Send[0], nil})
	_, errs["allocate without context"] = w.A.Alloc(none, 64, via.MemoryAttributes{})
	_, errs["wait without context"] = x.VI.RecvWait(none)
	_, errs["CQ wait without context"] = cq.Wait(none)
	_, errs["connect without context"] = x.VI.ConnectRequest(none, via.Address{}, "")
	for what, err := range errs {
		wantError(w, what, err, via.ErrInvalidParameter)
	}
	exchange(w, x, y, 100, 1)
	OK(w, c.Reject(ctx))
	wantError(w, "client", <-outcome, via.ErrReject)
}
