package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// refused has a command carried out that must fail with want.
func refused[T datasheet.CommandBody](t *testing.T, n *node, what string, op datasheet.Opcode, body T, want datasheet.Result) {
	t.Helper()
	r := n.wait(start(n, op, body))
	if r.Result != want {
		t.Errorf("%s: %v, want %v", what, r.Result, want)
	}
	if want != datasheet.ResultResource && want != datasheet.ResultBadOpcode && r.Field == 0 {
		t.Errorf("%s: the reply names no field", what)
	}
}

func TestUnknownOpcode(t *testing.T) {
	w := newWorld(t)
	for _, op := range []datasheet.Opcode{datasheet.OpResizeCQ + 1, 0xffff} {
		refused(t, w.a, op.String(), op, datasheet.PtagBody{}, datasheet.ResultBadOpcode)
	}
	do(w.a, datasheet.OpNop, datasheet.PtagBody{})
}

func TestProtectionTags(t *testing.T) {
	w := newWorld(t, func(c *engine.Config, p *port) {
		c.Limits = engine.DefaultLimits()
		c.Limits.Ptags = 3
	})
	n := w.a
	create := func() uint32 {
		return datasheet.Reply[datasheet.PtagBody](do(n, datasheet.OpCreatePtag, datasheet.PtagBody{})).Ptag
	}
	one, two := create(), create()
	if one == 0 || two == 0 || one == two {
		t.Fatalf("tags %#x, %#x", one, two)
	}
	refused(t, n, "one tag too many", datasheet.OpCreatePtag, datasheet.PtagBody{}, datasheet.ResultResource)
	refused(t, n, "destroying tag 0", datasheet.OpDestroyPtag, datasheet.PtagBody{}, datasheet.ResultInvalidPtag)
	h := n.memory(one, 0)
	v := n.newVI(0, func(b *datasheet.CreateEndpointBody) { b.Ptag = one })
	refused(t, n, "destroying a tag in use", datasheet.OpDestroyPtag, datasheet.PtagBody{Ptag: one}, datasheet.ResultResource)
	do(n, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: h})
	refused(t, n, "destroying a tag in use by a VI", datasheet.OpDestroyPtag, datasheet.PtagBody{Ptag: one}, datasheet.ResultResource)
	do(n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: v.id})
	do(n, datasheet.OpDestroyPtag, datasheet.PtagBody{Ptag: one})
	refused(t, n, "destroying a tag twice", datasheet.OpDestroyPtag, datasheet.PtagBody{Ptag: one}, datasheet.ResultInvalidPtag)
	if again := create(); again == one {
		t.Errorf("tag %#x was given out again at once", one)
	}
}

func TestRegisterMemoryRefusals(t *testing.T) {
	w := newWorld(t, func(c *engine.Config, p *port) {
		c.Limits = engine.DefaultLimits()
		c.Limits.Regions = 1
	})
	good := datasheet.RegisterMemoryBody{Address: hostBase, Length: 4096, IOVA: busBase}
	for _, c := range []struct {
		name  string
		spoil func(*datasheet.RegisterMemoryBody)
		want  datasheet.Result
	}{
		{"no length", func(b *datasheet.RegisterMemoryBody) { b.Length = 0 }, datasheet.ResultInvalidParameter},
		{"address that wraps", func(b *datasheet.RegisterMemoryBody) { b.Address = ^uint64(0) &^ 4095 }, datasheet.ResultInvalidParameter},
		{"bus address that wraps", func(b *datasheet.RegisterMemoryBody) { b.IOVA = ^uint64(0) &^ 4095 }, datasheet.ResultInvalidParameter},
		{"other offset in the page", func(b *datasheet.RegisterMemoryBody) { b.IOVA += 64 }, datasheet.ResultInvalidParameter},
		{"unknown tag", func(b *datasheet.RegisterMemoryBody) { b.Ptag = 77 }, datasheet.ResultInvalidPtag},
		{"reserved rights", func(b *datasheet.RegisterMemoryBody) { b.Access = 0x100 }, datasheet.ResultInvalidParameter},
		{"peers write what the NIC must not", func(b *datasheet.RegisterMemoryBody) {
			b.Access = datasheet.AccessRDMAWrite | datasheet.AccessReadOnly
		}, datasheet.ResultInvalidParameter},
		{"eager", func(b *datasheet.RegisterMemoryBody) { b.Access = datasheet.AccessEager }, datasheet.ResultNotSupported},
		{"page list", func(b *datasheet.RegisterMemoryBody) { b.Access = datasheet.AccessPageList }, datasheet.ResultNotSupported},
	} {
		b := good
		c.spoil(&b)
		refused(t, w.a, c.name, datasheet.OpRegisterMemory, b, c.want)
	}
	h := datasheet.Reply[datasheet.RegionReply](do(w.a, datasheet.OpRegisterMemory, good)).Handle
	refused(t, w.a, "one region too many", datasheet.OpRegisterMemory, good, datasheet.ResultResource)
	refused(t, w.a, "another handle", datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: h ^ 1<<20}, datasheet.ResultInvalidParameter)
	do(w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: h})
	refused(t, w.a, "a handle twice", datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: h}, datasheet.ResultInvalidParameter)
	refused(t, w.a, "handle zero", datasheet.OpDeregisterMemory, datasheet.MemoryBody{}, datasheet.ResultInvalidParameter)
	// A slot whose handles have all been used starts over, and stays usable.
	for range 5000 {
		h := datasheet.Reply[datasheet.RegionReply](do(w.a, datasheet.OpRegisterMemory, good)).Handle
		if h == 0 {
			t.Fatal("handle zero was given out")
		}
		do(w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: h})
	}
}

func TestCreateEndpointRefusals(t *testing.T) {
	w := newWorld(t, func(c *engine.Config, p *port) {
		c.Limits = engine.DefaultLimits()
		c.Limits.Endpoints = 2
	})
	n := w.a
	good := datasheet.CreateEndpointBody{SendIOVA: busBase, RecvIOVA: busBase + 4096, MaxTransfer: 1 << 20,
		SendCQ: datasheet.NoCQ, RecvCQ: datasheet.NoCQ, SendVector: datasheet.NoVector, RecvVector: 3,
		Kind: datasheet.KindVI, Reliability: datasheet.Unreliable, SendLog2: 4, RecvLog2: 4}
	for _, c := range []struct {
		name  string
		spoil func(*datasheet.CreateEndpointBody)
		want  datasheet.Result
	}{
		{"kind Ring", func(b *datasheet.CreateEndpointBody) { b.Kind = datasheet.KindRing }, datasheet.ResultNotSupported},
		{"kind Channel", func(b *datasheet.CreateEndpointBody) { b.Kind = datasheet.KindChannel }, datasheet.ResultNotSupported},
		{"kind 9", func(b *datasheet.CreateEndpointBody) { b.Kind = 9 }, datasheet.ResultInvalidParameter},
		{"no reliability", func(b *datasheet.CreateEndpointBody) { b.Reliability = 0 }, datasheet.ResultInvalidReliability},
		{"two reliabilities", func(b *datasheet.CreateEndpointBody) { b.Reliability = 3 }, datasheet.ResultInvalidReliability},
		{"no transfer", func(b *datasheet.CreateEndpointBody) { b.MaxTransfer = 0 }, datasheet.ResultInvalidMTU},
		{"huge transfer", func(b *datasheet.CreateEndpointBody) { b.MaxTransfer = datasheet.MaxTransfer + 1 }, datasheet.ResultInvalidMTU},
		{"unknown tag", func(b *datasheet.CreateEndpointBody) { b.Ptag = 5 }, datasheet.ResultInvalidPtag},
		{"RDMA read without reliability", func(b *datasheet.CreateEndpointBody) {
			b.Rights, b.Reliability = datasheet.AccessRDMARead, datasheet.Unreliable
		}, datasheet.ResultInvalidRDMARead},
		{"credit without reliability", func(b *datasheet.CreateEndpointBody) {
			b.Options, b.Reliability = datasheet.EndpointBreaks, datasheet.Unreliable
		}, datasheet.ResultInvalidParameter},
		{"promiscuous VI", func(b *datasheet.CreateEndpointBody) { b.Options = datasheet.EndpointPromiscuous }, datasheet.ResultInvalidParameter},
		{"odd rights", func(b *datasheet.CreateEndpointBody) { b.Rights = datasheet.AccessReadOnly }, datasheet.ResultInvalidParameter},
		{"one token", func(b *datasheet.CreateEndpointBody) { b.SendLog2 = 0 }, datasheet.ResultInvalidParameter},
		{"too many tokens", func(b *datasheet.CreateEndpointBody) { b.RecvLog2 = datasheet.MaxQueueLog2 + 1 }, datasheet.ResultInvalidParameter},
		{"no send ring", func(b *datasheet.CreateEndpointBody) { b.SendIOVA = 0 }, datasheet.ResultInvalidParameter},
		{"misaligned ring", func(b *datasheet.CreateEndpointBody) { b.RecvIOVA += 8 }, datasheet.ResultInvalidParameter},
		{"CQ that is not there", func(b *datasheet.CreateEndpointBody) { b.SendCQ = 0 }, datasheet.ResultInvalidParameter},
		{"CQ out of range", func(b *datasheet.CreateEndpointBody) { b.RecvCQ = 1 << 20 }, datasheet.ResultInvalidParameter},
		{"vector that is not there", func(b *datasheet.CreateEndpointBody) { b.SendVector = datasheet.Vectors }, datasheet.ResultInvalidParameter},
		{"receive vector that is not there", func(b *datasheet.CreateEndpointBody) { b.RecvVector = 0x7fff }, datasheet.ResultInvalidParameter},
	} {
		b := good
		c.spoil(&b)
		refused(t, n, c.name, datasheet.OpCreateEndpoint, b, c.want)
	}
	id := datasheet.Reply[datasheet.EndpointCreated](do(n, datasheet.OpCreateEndpoint, good)).Endpoint
	refused(t, n, "one endpoint too many", datasheet.OpCreateEndpoint, good, datasheet.ResultResource)
	for _, op := range []datasheet.Opcode{datasheet.OpDestroyEndpoint, datasheet.OpQueryEndpoint, datasheet.OpDisconnect} {
		refused(t, n, op.String(), op, datasheet.EndpointBody{Endpoint: id + 1}, datasheet.ResultInvalidParameter)
		refused(t, n, op.String(), op, datasheet.EndpointBody{}, datasheet.ResultInvalidParameter)
	}
	do(n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: id})
	do(n, datasheet.OpCreateEndpoint, good)
}

func TestDestroyEndpointInUse(t *testing.T) {
	_, v, p := pair(t, nil)
	refused(t, v.n, "connected", datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: v.id}, datasheet.ResultInvalidState)
	do(v.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
	d, _ := v.descriptor(10)
	v.postRecv(d)
	refused(t, v.n, "with a receive posted", datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: v.id}, datasheet.ResultResource)
	do(v.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
	do(v.n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: v.id})
	_ = p
}

func TestConnectRefusals(t *testing.T) {
	_, v, p := pair(t, nil)
	good := datasheet.ConnectRequestBody{Endpoint: v.n.newVI(v.handle, nil).id, TimeoutMS: 10, RemoteMAC: p.n.e.MAC(), Remote: disc("x")}
	for _, c := range []struct {
		name  string
		spoil func(*datasheet.ConnectRequestBody)
		want  datasheet.Result
	}{
		{"unknown endpoint", func(b *datasheet.ConnectRequestBody) { b.Endpoint = 4000 }, datasheet.ResultInvalidParameter},
		{"no time", func(b *datasheet.ConnectRequestBody) { b.TimeoutMS = 0 }, datasheet.ResultInvalidParameter},
		{"a group of stations", func(b *datasheet.ConnectRequestBody) { b.RemoteMAC[0] = 1 }, datasheet.ResultInvalidParameter},
		{"long discriminator", func(b *datasheet.ConnectRequestBody) { b.Remote.Len = 33 }, datasheet.ResultInvalidParameter},
		{"dirty discriminator", func(b *datasheet.ConnectRequestBody) { b.Local.Data[0] = 1 }, datasheet.ResultInvalidParameter},
		{"connected", func(b *datasheet.ConnectRequestBody) { b.Endpoint = v.id }, datasheet.ResultInvalidState},
	} {
		b := good
		c.spoil(&b)
		refused(t, v.n, c.name, datasheet.OpConnectRequest, b, c.want)
	}
	refused(t, v.n, "no time to wait", datasheet.OpConnectWait, datasheet.ConnectWaitBody{Local: disc("x")}, datasheet.ResultInvalidParameter)
	refused(t, v.n, "long discriminator", datasheet.OpConnectWait, datasheet.ConnectWaitBody{TimeoutMS: 1, Local: datasheet.Discriminator{Len: 99}}, datasheet.ResultInvalidParameter)
	refused(t, v.n, "reject of nothing", datasheet.OpConnectReject, datasheet.ConnectRejectBody{Connection: 99}, datasheet.ResultInvalidParameter)
	refused(t, v.n, "abort of nothing", datasheet.OpAbort, datasheet.AbortBody{ID: 9999}, datasheet.ResultInvalidParameter)
}
