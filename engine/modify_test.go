package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func TestModifyEndpointRefusals(t *testing.T) {
	_, v, p := pair(t, nil, smallMemory)
	idle := v.n.newVI(v.handle, nil)
	raw := v.n.newVI(v.handle, func(b *datasheet.CreateEndpointBody) {
		b.Kind, b.Reliability, b.MaxTransfer = datasheet.KindFrame, datasheet.Unreliable, 1000
	})
	good := datasheet.ModifyEndpointBody{Endpoint: idle.id, MaxTransfer: 1000, Reliability: datasheet.ReliableDelivery}
	for _, c := range []struct {
		name  string
		spoil func(*datasheet.ModifyEndpointBody)
		want  datasheet.Result
	}{
		{"endpoint 0", func(b *datasheet.ModifyEndpointBody) { b.Endpoint = 0 }, datasheet.ResultInvalidParameter},
		{"no such endpoint", func(b *datasheet.ModifyEndpointBody) { b.Endpoint = 1 << 30 }, datasheet.ResultInvalidParameter},
		{"connected", func(b *datasheet.ModifyEndpointBody) { b.Endpoint = v.id }, datasheet.ResultInvalidState},
		{"raw frames", func(b *datasheet.ModifyEndpointBody) { b.Endpoint = raw.id }, datasheet.ResultInvalidState},
		{"no reliability", func(b *datasheet.ModifyEndpointBody) { b.Reliability = 0 }, datasheet.ResultInvalidReliability},
		{"no transfer", func(b *datasheet.ModifyEndpointBody) { b.MaxTransfer = 0 }, datasheet.ResultInvalidMTU},
		{"huge transfer", func(b *datasheet.ModifyEndpointBody) { b.MaxTransfer = datasheet.MaxTransfer + 1 }, datasheet.ResultInvalidMTU},
		{"unknown tag", func(b *datasheet.ModifyEndpointBody) { b.Ptag = 77 }, datasheet.ResultInvalidPtag},
		{"reserved rights", func(b *datasheet.ModifyEndpointBody) { b.Rights = datasheet.AccessReserved }, datasheet.ResultInvalidParameter},
		{"option of another kind", func(b *datasheet.ModifyEndpointBody) { b.Options = datasheet.EndpointPromiscuous }, datasheet.ResultInvalidParameter},
	} {
		b := good
		c.spoil(&b)
		refused(t, v.n, c.name, datasheet.OpModifyEndpoint, b, c.want)
	}
	do(v.n, datasheet.OpModifyEndpoint, good)
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
	tag := datasheet.Reply[datasheet.PtagBody](do(n, datasheet.OpCreatePtag, datasheet.PtagBody{})).Ptag
	h := n.memory(0, 0)
	good := datasheet.ModifyMemoryBody{Handle: h, Ptag: tag, Access: datasheet.AccessReadOnly}
	for _, c := range []struct {
		name  string
		spoil func(*datasheet.ModifyMemoryBody)
		want  datasheet.Result
	}{
		{"handle zero", func(b *datasheet.ModifyMemoryBody) { b.Handle = 0 }, datasheet.ResultInvalidParameter},
		{"another generation", func(b *datasheet.ModifyMemoryBody) { b.Handle ^= 1 << 20 }, datasheet.ResultInvalidParameter},
		{"unknown tag", func(b *datasheet.ModifyMemoryBody) { b.Ptag ^= 1 << 20 }, datasheet.ResultInvalidPtag},
		{"reserved rights", func(b *datasheet.ModifyMemoryBody) { b.Access = 0x100 }, datasheet.ResultInvalidParameter},
		{"eager", func(b *datasheet.ModifyMemoryBody) { b.Access = datasheet.AccessEager }, datasheet.ResultNotSupported},
	} {
		b := good
		c.spoil(&b)
		refused(t, n, c.name, datasheet.OpModifyMemory, b, c.want)
	}
	// As often as one likes; the tags are counted.
	for range 5000 {
		do(n, datasheet.OpModifyMemory, good)
		refused(t, n, "a tag in use", datasheet.OpDestroyPtag, datasheet.PtagBody{Ptag: tag}, datasheet.ResultResource)
		do(n, datasheet.OpModifyMemory, datasheet.ModifyMemoryBody{Handle: h})
	}
	other := n.memory(0, 0)
	refused(t, n, "a full table", datasheet.OpModifyMemory, good, datasheet.ResultResource)
	do(n, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: other})
	do(n, datasheet.OpDestroyPtag, datasheet.PtagBody{Ptag: tag})
	do(n, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: h})
}

func TestResizeCQRefusals(t *testing.T) {
	w := newWorld(t)
	n := w.a
	_, _, ring := n.alloc(1 << 16)
	_, _, index := n.alloc(64)
	cq := datasheet.Reply[datasheet.CQBody](do(n, datasheet.OpCreateCQ, datasheet.CreateCQBody{
		IOVA: ring, IndexIOVA: index, Vector: datasheet.NoVector, Log2: 4})).CQ
	good := datasheet.ResizeCQBody{IOVA: ring + 4096, IndexIOVA: index + 4, CQ: cq, Log2: 5}
	for _, c := range []struct {
		name  string
		spoil func(*datasheet.ResizeCQBody)
		want  datasheet.Result
	}{
		{"no such queue", func(b *datasheet.ResizeCQBody) { b.CQ++ }, datasheet.ResultInvalidParameter},
		{"queue NoCQ", func(b *datasheet.ResizeCQBody) { b.CQ = datasheet.NoCQ }, datasheet.ResultInvalidParameter},
		{"no ring", func(b *datasheet.ResizeCQBody) { b.IOVA = 0 }, datasheet.ResultInvalidParameter},
		{"misaligned ring", func(b *datasheet.ResizeCQBody) { b.IOVA += 8 }, datasheet.ResultInvalidParameter},
		{"no index", func(b *datasheet.ResizeCQBody) { b.IndexIOVA = 0 }, datasheet.ResultInvalidParameter},
		{"misaligned index", func(b *datasheet.ResizeCQBody) { b.IndexIOVA++ }, datasheet.ResultInvalidParameter},
		{"too small", func(b *datasheet.ResizeCQBody) { b.Log2 = datasheet.MinCQLog2 - 1 }, datasheet.ResultInvalidParameter},
		{"too large", func(b *datasheet.ResizeCQBody) { b.Log2 = datasheet.MaxCQLog2 + 1 }, datasheet.ResultInvalidParameter},
		{"out of reach", func(b *datasheet.ResizeCQBody) { b.IOVA = 1 << 50 }, datasheet.ResultDMAFault},
		{"index out of reach", func(b *datasheet.ResizeCQBody) { b.IndexIOVA = 1 << 50 }, datasheet.ResultDMAFault},
	} {
		b := good
		c.spoil(&b)
		refused(t, n, c.name, datasheet.OpResizeCQ, b, c.want)
	}
	reply := do(n, datasheet.OpResizeCQ, good)
	if w := datasheet.Reply[datasheet.ResizeCQReply](reply).Written; w != 0 {
		t.Errorf("%d entries were written to a queue that nobody uses", w)
	}
	do(n, datasheet.OpDestroyCQ, datasheet.CQBody{CQ: cq})
}
