package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
)

// refused has a command carried out that must fail with want.
func refused[T descriptors.CommandBody](t *testing.T, n *node, what string, op descriptors.Opcode, body T, want descriptors.Result) {
	t.Helper()
	r := n.wait(start(n, op, body))
	if r.Result != want {
		t.Errorf("%s: %v, want %v", what, r.Result, want)
	}
	if want != descriptors.ResultResource && want != descriptors.ResultBadOpcode && r.Field == 0 {
		t.Errorf("%s: the reply names no field", what)
	}
}

func TestUnknownOpcode(t *testing.T) {
	w := newWorld(t)
	for _, op := range []descriptors.Opcode{descriptors.OpResizeCQ + 1, 0xffff} {
		refused(t, w.a, op.String(), op, descriptors.PtagBody{}, descriptors.ResultBadOpcode)
	}
	do(w.a, descriptors.OpNop, descriptors.PtagBody{})
}

func TestProtectionTags(t *testing.T) {
	w := newWorld(t, func(c *engine.Config, p *port) {
		c.Limits = engine.DefaultLimits()
		c.Limits.Ptags = 3
	})
	n := w.a
	create := func() uint32 {
		return descriptors.Reply[descriptors.PtagBody](do(n, descriptors.OpCreatePtag, descriptors.PtagBody{})).Ptag
	}
	one, two := create(), create()
	if one == 0 || two == 0 || one == two {
		t.Fatalf("tags %#x, %#x", one, two)
	}
	refused(t, n, "one tag too many", descriptors.OpCreatePtag, descriptors.PtagBody{}, descriptors.ResultResource)
	refused(t, n, "destroying tag 0", descriptors.OpDestroyPtag, descriptors.PtagBody{}, descriptors.ResultInvalidPtag)
	h := n.memory(one, 0)
	v := n.newVI(0, func(b *descriptors.CreateEndpointBody) { b.Ptag = one })
	refused(t, n, "destroying a tag in use", descriptors.OpDestroyPtag, descriptors.PtagBody{Ptag: one}, descriptors.ResultResource)
	do(n, descriptors.OpDeregisterMemory, descriptors.MemoryBody{Handle: h})
	refused(t, n, "destroying a tag in use by a VI", descriptors.OpDestroyPtag, descriptors.PtagBody{Ptag: one}, descriptors.ResultResource)
	do(n, descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: v.id})
	do(n, descriptors.OpDestroyPtag, descriptors.PtagBody{Ptag: one})
	refused(t, n, "destroying a tag twice", descriptors.OpDestroyPtag, descriptors.PtagBody{Ptag: one}, descriptors.ResultInvalidPtag)
	if again := create(); again == one {
		t.Errorf("tag %#x was given out again at once", one)
	}
}

func TestRegisterMemoryRefusals(t *testing.T) {
	w := newWorld(t, func(c *engine.Config, p *port) {
		c.Limits = engine.DefaultLimits()
		c.Limits.Regions = 1
	})
	good := descriptors.RegisterMemoryBody{Address: hostBase, Length: 4096, IOVA: busBase}
	for _, c := range []struct {
		name  string
		spoil func(*descriptors.RegisterMemoryBody)
		want  descriptors.Result
	}{
		{"no length", func(b *descriptors.RegisterMemoryBody) { b.Length = 0 }, descriptors.ResultInvalidParameter},
		{"address that wraps", func(b *descriptors.RegisterMemoryBody) { b.Address = ^uint64(0) &^ 4095 }, descriptors.ResultInvalidParameter},
		{"bus address that wraps", func(b *descriptors.RegisterMemoryBody) { b.IOVA = ^uint64(0) &^ 4095 }, descriptors.ResultInvalidParameter},
		{"other offset in the page", func(b *descriptors.RegisterMemoryBody) { b.IOVA += 64 }, descriptors.ResultInvalidParameter},
		{"unknown tag", func(b *descriptors.RegisterMemoryBody) { b.Ptag = 77 }, descriptors.ResultInvalidPtag},
		{"reserved rights", func(b *descriptors.RegisterMemoryBody) { b.Access = 0x100 }, descriptors.ResultInvalidParameter},
		{"peers write what the NIC must not", func(b *descriptors.RegisterMemoryBody) {
			b.Access = descriptors.AccessRDMAWrite | descriptors.AccessReadOnly
		}, descriptors.ResultInvalidParameter},
		{"eager", func(b *descriptors.RegisterMemoryBody) { b.Access = descriptors.AccessEager }, descriptors.ResultNotSupported},
		{"page list", func(b *descriptors.RegisterMemoryBody) { b.Access = descriptors.AccessPageList }, descriptors.ResultNotSupported},
	} {
		b := good
		c.spoil(&b)
		refused(t, w.a, c.name, descriptors.OpRegisterMemory, b, c.want)
	}
	h := descriptors.Reply[descriptors.RegionReply](do(w.a, descriptors.OpRegisterMemory, good)).Handle
	refused(t, w.a, "one region too many", descriptors.OpRegisterMemory, good, descriptors.ResultResource)
	refused(t, w.a, "another handle", descriptors.OpDeregisterMemory, descriptors.MemoryBody{Handle: h ^ 1<<20}, descriptors.ResultInvalidParameter)
	do(w.a, descriptors.OpDeregisterMemory, descriptors.MemoryBody{Handle: h})
	refused(t, w.a, "a handle twice", descriptors.OpDeregisterMemory, descriptors.MemoryBody{Handle: h}, descriptors.ResultInvalidParameter)
	refused(t, w.a, "handle zero", descriptors.OpDeregisterMemory, descriptors.MemoryBody{}, descriptors.ResultInvalidParameter)
	// A slot whose handles have all been used starts over, and stays usable.
	for range 5000 {
		h := descriptors.Reply[descriptors.RegionReply](do(w.a, descriptors.OpRegisterMemory, good)).Handle
		if h == 0 {
			t.Fatal("handle zero was given out")
		}
		do(w.a, descriptors.OpDeregisterMemory, descriptors.MemoryBody{Handle: h})
	}
}

func TestCreateEndpointRefusals(t *testing.T) {
	w := newWorld(t, func(c *engine.Config, p *port) {
		c.Limits = engine.DefaultLimits()
		c.Limits.Endpoints = 2
	})
	n := w.a
	good := descriptors.CreateEndpointBody{SendIOVA: busBase, RecvIOVA: busBase + 4096, MaxTransfer: 1 << 20,
		SendCQ: descriptors.NoCQ, RecvCQ: descriptors.NoCQ, SendVector: descriptors.NoVector, RecvVector: 3,
		Kind: descriptors.KindVI, Reliability: descriptors.Unreliable, SendLog2: 4, RecvLog2: 4}
	for _, c := range []struct {
		name  string
		spoil func(*descriptors.CreateEndpointBody)
		want  descriptors.Result
	}{
		{"kind Ring", func(b *descriptors.CreateEndpointBody) { b.Kind = descriptors.KindRing }, descriptors.ResultNotSupported},
		{"kind Channel", func(b *descriptors.CreateEndpointBody) { b.Kind = descriptors.KindChannel }, descriptors.ResultNotSupported},
		{"kind 9", func(b *descriptors.CreateEndpointBody) { b.Kind = 9 }, descriptors.ResultInvalidParameter},
		{"no reliability", func(b *descriptors.CreateEndpointBody) { b.Reliability = 0 }, descriptors.ResultInvalidReliability},
		{"two reliabilities", func(b *descriptors.CreateEndpointBody) { b.Reliability = 3 }, descriptors.ResultInvalidReliability},
		{"no transfer", func(b *descriptors.CreateEndpointBody) { b.MaxTransfer = 0 }, descriptors.ResultInvalidMTU},
		{"huge transfer", func(b *descriptors.CreateEndpointBody) { b.MaxTransfer = descriptors.MaxTransfer + 1 }, descriptors.ResultInvalidMTU},
		{"unknown tag", func(b *descriptors.CreateEndpointBody) { b.Ptag = 5 }, descriptors.ResultInvalidPtag},
		{"RDMA read without reliability", func(b *descriptors.CreateEndpointBody) {
			b.Rights, b.Reliability = descriptors.AccessRDMARead, descriptors.Unreliable
		}, descriptors.ResultInvalidRDMARead},
		{"credit without reliability", func(b *descriptors.CreateEndpointBody) {
			b.Options, b.Reliability = descriptors.EndpointBreaks, descriptors.Unreliable
		}, descriptors.ResultInvalidParameter},
		{"promiscuous VI", func(b *descriptors.CreateEndpointBody) { b.Options = descriptors.EndpointPromiscuous }, descriptors.ResultInvalidParameter},
		{"odd rights", func(b *descriptors.CreateEndpointBody) { b.Rights = descriptors.AccessReadOnly }, descriptors.ResultInvalidParameter},
		{"one token", func(b *descriptors.CreateEndpointBody) { b.SendLog2 = 0 }, descriptors.ResultInvalidParameter},
		{"too many tokens", func(b *descriptors.CreateEndpointBody) { b.RecvLog2 = descriptors.MaxQueueLog2 + 1 }, descriptors.ResultInvalidParameter},
		{"no send ring", func(b *descriptors.CreateEndpointBody) { b.SendIOVA = 0 }, descriptors.ResultInvalidParameter},
		{"misaligned ring", func(b *descriptors.CreateEndpointBody) { b.RecvIOVA += 8 }, descriptors.ResultInvalidParameter},
		{"CQ that is not there", func(b *descriptors.CreateEndpointBody) { b.SendCQ = 0 }, descriptors.ResultInvalidParameter},
		{"CQ out of range", func(b *descriptors.CreateEndpointBody) { b.RecvCQ = 1 << 20 }, descriptors.ResultInvalidParameter},
		{"vector that is not there", func(b *descriptors.CreateEndpointBody) { b.SendVector = descriptors.Vectors }, descriptors.ResultInvalidParameter},
		{"receive vector that is not there", func(b *descriptors.CreateEndpointBody) { b.RecvVector = 0x7fff }, descriptors.ResultInvalidParameter},
	} {
		b := good
		c.spoil(&b)
		refused(t, n, c.name, descriptors.OpCreateEndpoint, b, c.want)
	}
	id := descriptors.Reply[descriptors.EndpointCreated](do(n, descriptors.OpCreateEndpoint, good)).Endpoint
	refused(t, n, "one endpoint too many", descriptors.OpCreateEndpoint, good, descriptors.ResultResource)
	for _, op := range []descriptors.Opcode{descriptors.OpDestroyEndpoint, descriptors.OpQueryEndpoint, descriptors.OpDisconnect} {
		refused(t, n, op.String(), op, descriptors.EndpointBody{Endpoint: id + 1}, descriptors.ResultInvalidParameter)
		refused(t, n, op.String(), op, descriptors.EndpointBody{}, descriptors.ResultInvalidParameter)
	}
	do(n, descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: id})
	do(n, descriptors.OpCreateEndpoint, good)
}

func TestDestroyEndpointInUse(t *testing.T) {
	_, v, p := pair(t, nil)
	refused(t, v.n, "connected", descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: v.id}, descriptors.ResultInvalidState)
	do(v.n, descriptors.OpDisconnect, descriptors.EndpointBody{Endpoint: v.id})
	d, _ := v.descriptor(10)
	v.postRecv(d)
	refused(t, v.n, "with a receive posted", descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: v.id}, descriptors.ResultResource)
	do(v.n, descriptors.OpDisconnect, descriptors.EndpointBody{Endpoint: v.id})
	do(v.n, descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: v.id})
	_ = p
}

func TestConnectRefusals(t *testing.T) {
	_, v, p := pair(t, nil)
	good := descriptors.ConnectRequestBody{Endpoint: v.n.newVI(v.handle, nil).id, TimeoutMS: 10, RemoteMAC: p.n.e.MAC(), Remote: disc("x")}
	for _, c := range []struct {
		name  string
		spoil func(*descriptors.ConnectRequestBody)
		want  descriptors.Result
	}{
		{"unknown endpoint", func(b *descriptors.ConnectRequestBody) { b.Endpoint = 4000 }, descriptors.ResultInvalidParameter},
		{"no time", func(b *descriptors.ConnectRequestBody) { b.TimeoutMS = 0 }, descriptors.ResultInvalidParameter},
		{"a group of stations", func(b *descriptors.ConnectRequestBody) { b.RemoteMAC[0] = 1 }, descriptors.ResultInvalidParameter},
		{"long discriminator", func(b *descriptors.ConnectRequestBody) { b.Remote.Len = 33 }, descriptors.ResultInvalidParameter},
		{"dirty discriminator", func(b *descriptors.ConnectRequestBody) { b.Local.Data[0] = 1 }, descriptors.ResultInvalidParameter},
		{"connected", func(b *descriptors.ConnectRequestBody) { b.Endpoint = v.id }, descriptors.ResultInvalidState},
	} {
		b := good
		c.spoil(&b)
		refused(t, v.n, c.name, descriptors.OpConnectRequest, b, c.want)
	}
	refused(t, v.n, "no time to wait", descriptors.OpConnectWait, descriptors.ConnectWaitBody{Local: disc("x")}, descriptors.ResultInvalidParameter)
	refused(t, v.n, "long discriminator", descriptors.OpConnectWait, descriptors.ConnectWaitBody{TimeoutMS: 1, Local: descriptors.Discriminator{Len: 99}}, descriptors.ResultInvalidParameter)
	refused(t, v.n, "reject of nothing", descriptors.OpConnectReject, descriptors.ConnectRejectBody{Connection: 99}, descriptors.ResultInvalidParameter)
	refused(t, v.n, "abort of nothing", descriptors.OpAbort, descriptors.AbortBody{ID: 9999}, descriptors.ResultInvalidParameter)
}
