package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
)

func TestModifyEndpointRefusals(t *testing.T) {
	_, v, p := pair(t, nil, smallMemory)
	idle := v.n.newVI(v.handle, nil)
	raw := v.n.newVI(v.handle, func(b *descriptors.CreateEndpointBody) {
		b.Kind, b.Reliability, b.MaxTransfer = descriptors.KindFrame, descriptors.Unreliable, 1000
	})
	good := descriptors.ModifyEndpointBody{Endpoint: idle.id, MaxTransfer: 1000, Reliability: descriptors.ReliableDelivery}
	for _, c := range []struct {
		name  string
		spoil func(*descriptors.ModifyEndpointBody)
		want  descriptors.Result
	}{
		{"endpoint 0", func(b *descriptors.ModifyEndpointBody) { b.Endpoint = 0 }, descriptors.ResultInvalidParameter},
		{"no such endpoint", func(b *descriptors.ModifyEndpointBody) { b.Endpoint = 1 << 30 }, descriptors.ResultInvalidParameter},
		{"connected", func(b *descriptors.ModifyEndpointBody) { b.Endpoint = v.id }, descriptors.ResultInvalidState},
		{"raw frames", func(b *descriptors.ModifyEndpointBody) { b.Endpoint = raw.id }, descriptors.ResultInvalidState},
		{"no reliability", func(b *descriptors.ModifyEndpointBody) { b.Reliability = 0 }, descriptors.ResultInvalidReliability},
		{"no transfer", func(b *descriptors.ModifyEndpointBody) { b.MaxTransfer = 0 }, descriptors.ResultInvalidMTU},
		{"huge transfer", func(b *descriptors.ModifyEndpointBody) { b.MaxTransfer = descriptors.MaxTransfer + 1 }, descriptors.ResultInvalidMTU},
		{"unknown tag", func(b *descriptors.ModifyEndpointBody) { b.Ptag = 77 }, descriptors.ResultInvalidPtag},
		{"reserved rights", func(b *descriptors.ModifyEndpointBody) { b.Rights = descriptors.AccessReserved }, descriptors.ResultInvalidParameter},
		{"option of another kind", func(b *descriptors.ModifyEndpointBody) { b.Options = descriptors.EndpointPromiscuous }, descriptors.ResultInvalidParameter},
	} {
		b := good
		c.spoil(&b)
		refused(t, v.n, c.name, descriptors.OpModifyEndpoint, b, c.want)
	}
	do(v.n, descriptors.OpModifyEndpoint, good)
	if sent, received, _ := message(v, p, []byte("alive")); sent.Failed() || received.Failed() {
		t.Errorf("%v, %v", sent, received)
	}
}

func TestModifyMemoryRefusals(t *testing.T) {
	w := newWorld(t, func(c *engine.Config, p *port) {
		c.Limits = engine.DefaultLimits()
		c.Limits.Regions = 2
	})
	n := w.a
	tag := descriptors.Reply[descriptors.PtagBody](do(n, descriptors.OpCreatePtag, descriptors.PtagBody{})).Ptag
	h := n.memory(0, 0)
	good := descriptors.ModifyMemoryBody{Handle: h, Ptag: tag, Access: descriptors.AccessReadOnly}
	for _, c := range []struct {
		name  string
		spoil func(*descriptors.ModifyMemoryBody)
		want  descriptors.Result
	}{
		{"handle zero", func(b *descriptors.ModifyMemoryBody) { b.Handle = 0 }, descriptors.ResultInvalidParameter},
		{"another generation", func(b *descriptors.ModifyMemoryBody) { b.Handle ^= 1 << 20 }, descriptors.ResultInvalidParameter},
		{"unknown tag", func(b *descriptors.ModifyMemoryBody) { b.Ptag ^= 1 << 20 }, descriptors.ResultInvalidPtag},
		{"reserved rights", func(b *descriptors.ModifyMemoryBody) { b.Access = 0x100 }, descriptors.ResultInvalidParameter},
		{"eager", func(b *descriptors.ModifyMemoryBody) { b.Access = descriptors.AccessEager }, descriptors.ResultNotSupported},
	} {
		b := good
		c.spoil(&b)
		refused(t, n, c.name, descriptors.OpModifyMemory, b, c.want)
	}
	// As often as one likes; the tags are counted.
	for range 5000 {
		do(n, descriptors.OpModifyMemory, good)
		refused(t, n, "a tag in use", descriptors.OpDestroyPtag, descriptors.PtagBody{Ptag: tag}, descriptors.ResultResource)
		do(n, descriptors.OpModifyMemory, descriptors.ModifyMemoryBody{Handle: h})
	}
	other := n.memory(0, 0)
	refused(t, n, "a full table", descriptors.OpModifyMemory, good, descriptors.ResultResource)
	do(n, descriptors.OpDeregisterMemory, descriptors.MemoryBody{Handle: other})
	do(n, descriptors.OpDestroyPtag, descriptors.PtagBody{Ptag: tag})
	do(n, descriptors.OpDeregisterMemory, descriptors.MemoryBody{Handle: h})
}

func TestResizeCQRefusals(t *testing.T) {
	w := newWorld(t)
	n := w.a
	_, _, ring := n.alloc(1 << 16)
	_, _, index := n.alloc(64)
	cq := descriptors.Reply[descriptors.CQBody](do(n, descriptors.OpCreateCQ, descriptors.CreateCQBody{
		IOVA: ring, IndexIOVA: index, Vector: descriptors.NoVector, Log2: 4})).CQ
	good := descriptors.ResizeCQBody{IOVA: ring + 4096, IndexIOVA: index + 4, CQ: cq, Log2: 5}
	for _, c := range []struct {
		name  string
		spoil func(*descriptors.ResizeCQBody)
		want  descriptors.Result
	}{
		{"no such queue", func(b *descriptors.ResizeCQBody) { b.CQ++ }, descriptors.ResultInvalidParameter},
		{"queue NoCQ", func(b *descriptors.ResizeCQBody) { b.CQ = descriptors.NoCQ }, descriptors.ResultInvalidParameter},
		{"no ring", func(b *descriptors.ResizeCQBody) { b.IOVA = 0 }, descriptors.ResultInvalidParameter},
		{"misaligned ring", func(b *descriptors.ResizeCQBody) { b.IOVA += 8 }, descriptors.ResultInvalidParameter},
		{"no index", func(b *descriptors.ResizeCQBody) { b.IndexIOVA = 0 }, descriptors.ResultInvalidParameter},
		{"misaligned index", func(b *descriptors.ResizeCQBody) { b.IndexIOVA++ }, descriptors.ResultInvalidParameter},
		{"too small", func(b *descriptors.ResizeCQBody) { b.Log2 = descriptors.MinCQLog2 - 1 }, descriptors.ResultInvalidParameter},
		{"too large", func(b *descriptors.ResizeCQBody) { b.Log2 = descriptors.MaxCQLog2 + 1 }, descriptors.ResultInvalidParameter},
		{"out of reach", func(b *descriptors.ResizeCQBody) { b.IOVA = 1 << 50 }, descriptors.ResultDMAFault},
		{"index out of reach", func(b *descriptors.ResizeCQBody) { b.IndexIOVA = 1 << 50 }, descriptors.ResultDMAFault},
	} {
		b := good
		c.spoil(&b)
		refused(t, n, c.name, descriptors.OpResizeCQ, b, c.want)
	}
	reply := do(n, descriptors.OpResizeCQ, good)
	if w := descriptors.Reply[descriptors.ResizeCQReply](reply).Written; w != 0 {
		t.Errorf("%d entries were written to a queue that nobody uses", w)
	}
	do(n, descriptors.OpDestroyCQ, descriptors.CQBody{CQ: cq})
}
