package viatest

import (
	"context"

	"github.com/trapeze-nic/trapeze/via"
)

func testVIArguments(t T, p *Pair) {
	ctx := Context(t)
	a := p.A.Query()
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
		_, err := p.A.CreateVI(ctx, c.a, nil, nil)
		WantError(t, c.name, err, c.want)
	}
	vi := Must(p.A.CreateVI(ctx, via.VIAttributes{SendDepth: a.MaxDescriptors, RecvDepth: a.MaxDescriptors, MaxTransfer: a.MaxTransfer}, nil, nil))(t)
	s := Must(vi.Query(ctx))(t)
	if s.State != via.Idle || s.Attributes.Reliability != via.ReliableDelivery || s.Attributes.MaxTransfer != a.MaxTransfer {
		t.Errorf("new VI: %+v", s)
	}
	OK(t, vi.Destroy(ctx))
}

// testRDMARights: VIs get the rights that the NIC has at their level, and no others.
func testRDMARights(t T, p *Pair) {
	ctx := Context(t)
	a := p.A.Query()
	if (a.RDMAWrite|a.RDMARead)&^a.Reliability != 0 || a.RDMARead&via.Unreliable != 0 {
		t.Errorf("RDMA writes at %v, reads at %v, of a NIC with %v", a.RDMAWrite, a.RDMARead, a.Reliability)
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
			vi, err := p.A.CreateVI(ctx, c.a, nil, nil)
			if c.has&level == 0 {
				WantError(t, c.name, err, c.refuse)
				continue
			}
			OK(t, err)
			if got := vi.Attributes(); got.RDMAWrite != c.a.RDMAWrite || got.RDMARead != c.a.RDMARead {
				t.Errorf("%s at %v: attributes %+v", c.name, level, got)
			}
			OK(t, vi.Destroy(ctx))
		}
	}
}

func testDestroy(t T, p *Pair) {
	ctx := Context(t)
	x, y := p.Connect(t, Setup{})
	WantError(t, "destroy a connected VI", x.VI.Destroy(ctx), via.ErrInvalidState)
	exchange(t, p, x, y, 100, 1)
	OK(t, x.VI.PostRecv(x.Prepare(t, x.Recv[0], 0, 10)))
	OK(t, x.VI.Disconnect(ctx))
	WantError(t, "destroy with a descriptor", x.VI.Destroy(ctx), via.ErrResource)
	if s := Must(x.VI.Query(ctx))(t); s.RecvQueued != 1 {
		t.Errorf("%d receives queued, want 1", s.RecvQueued)
	}
	d, err := p.Take(t, x.VI.RecvDone)
	wantStatus(t, "receive", d, err, via.StatusFlushed)
	OK(t, x.VI.Destroy(ctx))
	// From the error state too.
	p.Until(t, "the other end to notice", func() bool {
		return Must(y.VI.Query(Context(t)))(t).State == via.ErrorState
	})
	OK(t, y.VI.Destroy(ctx))

	WantError(t, "destroy twice", x.VI.Destroy(ctx), via.ErrClosed, via.ErrInvalidParameter)
	_, err = x.VI.Query(ctx)
	WantError(t, "query", err, via.ErrClosed)
	_, err = x.VI.SendDone()
	WantError(t, "done", err, via.ErrClosed)
	_, err = x.VI.NewDescriptors(ctx, 1, 1)
	WantError(t, "new descriptors", err, via.ErrClosed)
	WantError(t, "disconnect", x.VI.Disconnect(ctx), via.ErrClosed)
	own := Must(x.Memory.NewDescriptor(0, 0))(t)
	WantError(t, "post", x.VI.PostSend(own), via.ErrClosed)

	client := NewEnd(t, p.A, Setup{})
	c, outcome := dial(ctx, t, client.VI, p.B)
	WantError(t, "destroy a VI that connects", client.VI.Destroy(ctx), via.ErrInvalidState)
	OK(t, c.Reject(ctx))
	WantError(t, "client", <-outcome, via.ErrReject)
}

func testForeign(t T, p *Pair) {
	ctx := Context(t)
	var none context.Context
	x, y := p.Connect(t, Setup{})
	tag := Must(p.B.CreatePtag(ctx))(t)
	cq := Must(p.B.CreateCQ(ctx, 256))(t)
	client := NewEnd(t, p.B, Setup{})
	c, outcome := dial(ctx, t, client.VI, p.A)

	errs := map[string]error{
		"post nothing to send":       x.VI.PostSend(nil),
		"post nothing to receive":    x.VI.PostRecv(nil),
		"add to no descriptor":       x.Memory.AddTo(nil, 0, 1),
		"disconnect without context": x.VI.Disconnect(none),
		"destroy without context":    x.VI.Destroy(none),
	}
	_, errs["memory with a foreign ptag"] = p.A.Alloc(ctx, 64, via.MemoryAttributes{Ptag: tag})
	_, errs["VI with a foreign ptag"] = p.A.CreateVI(ctx, via.VIAttributes{Ptag: tag}, nil, nil)
	_, errs["VI with a foreign send CQ"] = p.A.CreateVI(ctx, via.VIAttributes{}, cq, nil)
	_, errs["VI with a foreign receive CQ"] = p.A.CreateVI(ctx, via.VIAttributes{}, nil, cq)
	_, errs["accept with a foreign VI"] = c.Accept(ctx, client.VI)
	_, errs["accept with no VI"] = c.Accept(ctx, nil)
	_, errs["batch with nothing in it"] = x.VI.PostSendBatch([]*via.Descriptor{x.Send[0], nil})
	_, errs["allocate without context"] = p.A.Alloc(none, 64, via.MemoryAttributes{})
	_, errs["wait without context"] = x.VI.RecvWait(none)
	_, errs["CQ wait without context"] = cq.Wait(none)
	_, errs["connect without context"] = x.VI.ConnectRequest(none, via.Address{}, nil)
	for what, err := range errs {
		WantError(t, what, err, via.ErrInvalidParameter)
	}
	exchange(t, p, x, y, 100, 1)
	OK(t, c.Reject(ctx))
	WantError(t, "client", <-outcome, via.ErrReject)
}
