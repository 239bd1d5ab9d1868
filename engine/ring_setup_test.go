package engine_test

import (
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
)

func (r *ring) destroy() {
	r.n.w.t.Helper()
	do(r.n, descriptors.OpDisconnect, descriptors.EndpointBody{Endpoint: r.id})
	do(r.n, descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: r.id})
}

// Rings are zeroed pages of device memory, one behind the other, and no two share a page.
func TestRingMemory(t *testing.T) {
	w := newRingWorld(t)
	memory := w.a.memory(0, 0)
	owner := map[uint32]uint32{}
	for range 3 {
		r := w.a.newRing(memory, func(b *descriptors.CreateEndpointBody) { b.RecvLog2 = ringLog2 + 1 })
		end := r.at.Table + descriptors.PayloadEntries*descriptors.RingPlaceSize
		if r.at.Send%descriptors.PageSize != 0 || r.at.Recv != r.at.Send+ringSlots*descriptors.RingSlotSize ||
			r.at.Table != r.at.Recv+2*ringSlots*descriptors.RingSlotSize || r.at.Send < sramFrom || end > sramSize {
			t.Fatalf("%+v", r.at)
		}
		for i := r.at.Send; i < end; i++ {
			if w.a.sram[i] != 0 {
				t.Fatalf("byte %#x is %#x", i, w.a.sram[i])
			}
			if page := i / descriptors.PageSize; owner[page] != 0 && owner[page] != r.id {
				t.Fatalf("page %#x is of endpoints %d and %d", page, owner[page], r.id)
			}
			owner[i/descriptors.PageSize] = r.id
			w.a.sram[i] = 0xee
		}
	}
}

func TestRingRefusals(t *testing.T) {
	w := newRingWorld(t)
	n := w.a
	free := n.e.FreeSRAM()
	for name, c := range map[string]struct {
		change func(*descriptors.CreateEndpointBody)
		why    descriptors.Result
	}{
		"a send ring of its own":    {func(b *descriptors.CreateEndpointBody) { b.SendIOVA = busBase }, descriptors.ResultInvalidParameter},
		"a receive ring of its own": {func(b *descriptors.CreateEndpointBody) { b.RecvIOVA = busBase }, descriptors.ResultInvalidParameter},
		"too short for a message":   {func(b *descriptors.CreateEndpointBody) { b.MaxTransfer = ringMessage - 1 }, descriptors.ResultInvalidMTU},
		"too long":                  {func(b *descriptors.CreateEndpointBody) { b.MaxTransfer = descriptors.MaxTransfer + 1 }, descriptors.ResultInvalidMTU},
		"rights":                    {func(b *descriptors.CreateEndpointBody) { b.Rights = descriptors.AccessRDMAWrite }, descriptors.ResultInvalidParameter},
		"options":                   {func(b *descriptors.CreateEndpointBody) { b.Options = descriptors.EndpointBreaks }, descriptors.ResultInvalidParameter},
		"a shared queue":            {func(b *descriptors.CreateEndpointBody) { b.Options = descriptors.EndpointShares }, descriptors.ResultInvalidParameter},
		"one slot":                  {func(b *descriptors.CreateEndpointBody) { b.SendLog2 = 0 }, descriptors.ResultInvalidParameter},
		"too many slots":            {func(b *descriptors.CreateEndpointBody) { b.RecvLog2 = descriptors.MaxQueueLog2 + 1 }, descriptors.ResultInvalidParameter},
		"no such tag":               {func(b *descriptors.CreateEndpointBody) { b.Ptag = 77 }, descriptors.ResultInvalidPtag},
		"no such CQ":                {func(b *descriptors.CreateEndpointBody) { b.SendCQ = 5 }, descriptors.ResultInvalidParameter},
		"no such vector":            {func(b *descriptors.CreateEndpointBody) { b.RecvVector = descriptors.Vectors }, descriptors.ResultInvalidParameter},
	} {
		if r := n.wait(start(n, descriptors.OpCreateEndpoint, ringBody(c.change))); r.Result != c.why || r.Field == 0 {
			t.Errorf("%s: %v, field %d", name, r.Result, r.Field)
		}
	}
	// More slots than there is device memory.
	if r := n.wait(start(n, descriptors.OpCreateEndpoint, ringBody(func(b *descriptors.CreateEndpointBody) { b.SendLog2 = descriptors.MaxQueueLog2 }))); r.Result != descriptors.ResultResource {
		t.Errorf("too large: %v", r.Result)
	}
	if n.e.FreeSRAM() != free {
		t.Errorf("%d bytes of device memory have gone", free-n.e.FreeSRAM())
	}
	if n.e.Features()&descriptors.FeatureRing == 0 {
		t.Error("no FeatureRing")
	}
}

// What is of a VI alone is refused of a ring, and the other way round.
func TestRingsAreNotVIs(t *testing.T) {
	w, a, b := ringPair(t, func(b *descriptors.CreateEndpointBody) { b.Reliability = descriptors.ReliableDelivery })
	idle := w.a.newRing(a.memory, nil)
	as := func(r *ring) *vi { return &vi{n: r.n, id: r.id, handle: r.memory} }
	for _, c := range []struct {
		name string
		id   uint16
		want descriptors.Result
	}{
		{"modify", start(w.a, descriptors.OpModifyEndpoint, descriptors.ModifyEndpointBody{Endpoint: idle.id, MaxTransfer: 4096, Reliability: descriptors.Unreliable}), descriptors.ResultInvalidState},
		{"deregister its memory", start(w.a, descriptors.OpDeregisterMemory, descriptors.MemoryBody{Handle: a.handle}), descriptors.ResultResource},
		{"modify its memory", start(w.a, descriptors.OpModifyMemory, descriptors.ModifyMemoryBody{Handle: a.handle, Access: descriptors.AccessRDMAWrite}), descriptors.ResultResource},
		{"a tag of another entry", start(w.a, descriptors.OpSetPayload, descriptors.SetPayloadBody{Endpoint: a.id, Address: hostBase, Handle: a.memory, Length: 1, Entry: 3, Tag: 4}), descriptors.ResultInvalidParameter},
		{"memory that is not there", start(w.a, descriptors.OpSetPayload, descriptors.SetPayloadBody{Endpoint: a.id, Address: 1, Handle: a.memory, Length: 1, Entry: 3, Tag: 3}), descriptors.ResultInvalidParameter},
		{"an entry that is not there", start(w.a, descriptors.OpSetPayload, descriptors.SetPayloadBody{Endpoint: a.id, Address: hostBase, Handle: a.memory, Length: 1, Entry: 256, Tag: 256}), descriptors.ResultInvalidParameter},
		{"a tag for a VI", start(w.a, descriptors.OpSetPayload, descriptors.SetPayloadBody{Endpoint: w.a.newVI(a.memory, nil).id, Address: hostBase, Handle: a.memory, Length: 1, Entry: 3, Tag: 3}), descriptors.ResultInvalidParameter},
		{"destroy while connected", start(w.a, descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: a.id}), descriptors.ResultInvalidState},
	} {
		if r := w.a.wait(c.id); r.Result != c.want || r.Field == 0 {
			t.Errorf("%s: %v, field %d", c.name, r.Result, r.Field)
		}
	}
	// A request says of what kind it is, and only one of that kind can accept it.
	plain := w.b.newVI(b.memory, func(b *descriptors.CreateEndpointBody) { b.MaxTransfer = ringMessage + maxPayload })
	reliable := func(b *descriptors.CreateEndpointBody) { b.Reliability = descriptors.ReliableDelivery }
	for _, c := range []struct {
		from, wrong, right *vi
		kind               descriptors.Kind
	}{
		{as(w.a.newRing(a.memory, reliable)), plain, as(w.b.newRing(b.memory, reliable)), descriptors.KindRing},
		{w.a.newVI(a.memory, func(b *descriptors.CreateEndpointBody) { b.MaxTransfer = ringMessage + maxPayload }), as(w.b.newRing(b.memory, reliable)), plain, descriptors.KindVI},
	} {
		wait := start(w.b, descriptors.OpConnectWait, descriptors.ConnectWaitBody{TimeoutMS: 10_000, Local: disc("test")})
		request := start(w.a, descriptors.OpConnectRequest, descriptors.ConnectRequestBody{Endpoint: c.from.id, TimeoutMS: 10_000, RemoteMAC: w.b.e.MAC(), Remote: disc("test")})
		e := w.b.wait(wait)
		got := descriptors.Reply[descriptors.ConnectionReply](&e)
		if got.Kind != c.kind {
			t.Errorf("the client is a %v, want %v", got.Kind, c.kind)
		}
		accept := descriptors.ConnectAcceptBody{Connection: got.Connection, Endpoint: c.wrong.id, TimeoutMS: 10_000}
		refused(t, w.b, "another kind", descriptors.OpConnectAccept, accept, descriptors.ResultInvalidParameter)
		accept.Endpoint = c.right.id
		do(w.b, descriptors.OpConnectAccept, accept)
		if r := w.a.wait(request); r.Result != descriptors.ResultSuccess {
			t.Errorf("%v: %v", c.kind, r.Result)
		}
	}
}

// Without device memory there are no rings.
func TestNoRingsWithoutDeviceMemory(t *testing.T) {
	w := newWorld(t)
	refused(t, w.a, "no device memory", descriptors.OpCreateEndpoint, ringBody(nil), descriptors.ResultNotSupported)
	if w.a.e.Features()&descriptors.FeatureRing != 0 {
		t.Error("FeatureRing")
	}
}

// A storm of rings that come and go, some with messages under way, leaves nothing behind: all
// device memory is free again, and so are tags and regions.
func TestRingsComeAndGo(t *testing.T) {
	w := newRingWorld(t, func(c *engine.Config, _ *port) {
		c.Limits = engine.DefaultLimits()
		c.Limits.Regions = 40
	})
	r := rand.New(rand.NewPCG(1, 2))
	a, b := w.a.memory(0, 0), w.b.memory(0, 0)
	free := [2]uint32{w.a.e.FreeSRAM(), w.b.e.FreeSRAM()}
	var live [][2]*ring
	full := 0
	for range 600 {
		if len(live) > 0 && (r.IntN(3) == 0 || len(live) == 30) {
			i := r.IntN(len(live))
			live[i][0].destroy()
			live[i][1].destroy()
			live = append(live[:i], live[i+1:]...)
			continue
		}
		body := ringBody(func(b *descriptors.CreateEndpointBody) {
			b.SendLog2, b.RecvLog2 = uint8(1+r.IntN(9)), uint8(1+r.IntN(9))
			if r.IntN(2) == 0 {
				b.Reliability = descriptors.ReliableDelivery
			}
		})
		before := w.a.e.FreeSRAM()
		if reply := w.a.wait(start(w.a, descriptors.OpCreateEndpoint, body)); reply.Result == descriptors.ResultResource {
			if full++; w.a.e.FreeSRAM() != before {
				t.Fatal("a ring that was refused has taken device memory")
			}
			continue
		} else if reply.Result == descriptors.ResultSuccess {
			do(w.a, descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: descriptors.Reply[descriptors.EndpointCreated](&reply).Endpoint})
		}
		same := func(b *descriptors.CreateEndpointBody) { *b = body }
		if w.b.e.FreeSRAM() < before { // it may have no room for it, or no piece
			continue
		}
		reply := w.b.wait(start(w.b, descriptors.OpCreateEndpoint, body))
		if reply.Result != descriptors.ResultSuccess {
			continue
		}
		do(w.b, descriptors.OpDestroyEndpoint, descriptors.EndpointBody{Endpoint: descriptors.Reply[descriptors.EndpointCreated](&reply).Endpoint})
		x, y := w.a.newRing(a, same), w.b.newRing(b, same)
		connect(&vi{n: x.n, id: x.id}, &vi{n: y.n, id: y.id})
		live = append(live, [2]*ring{x, y})
		w.a.brk, w.b.brk = 0, 0
		y.receive(5000)
		x.transmit(pattern(ringMessage, 1), pattern(5000, 2), 0)
		for range r.IntN(8) {
			w.a.e.Step()
			w.b.e.Step()
		}
	}
	if full == 0 {
		t.Error("device memory never was too little")
	}
	for _, p := range live {
		p[0].destroy()
		p[1].destroy()
	}
	if w.a.e.FreeSRAM() != free[0] || w.b.e.FreeSRAM() != free[1] {
		t.Errorf("%d and %d bytes are free, of %v", w.a.e.FreeSRAM(), w.b.e.FreeSRAM(), free)
	}
	w.a.newRing(a, func(b *descriptors.CreateEndpointBody) { b.SendLog2, b.RecvLog2 = 11, 11 }) // all of it, in one piece
}

// A reset gives back the memory of rings that are there.
func TestRingReset(t *testing.T) {
	w, a, b := ringPair(t, nil)
	b.receive(5000)
	a.transmit(pattern(ringMessage, 1), pattern(5000, 2), 0)
	w.a.e.Step()
	w.a.e.Reset()
	if got := w.a.e.FreeSRAM(); got != sramSize-sramFrom {
		t.Errorf("%d bytes are free, want %d", got, sramSize-sramFrom)
	}
	again := w.a.newRing(w.a.memory(0, 0), nil)
	for i, c := range w.a.sram[again.at.Send:again.at.Table] {
		if c != 0 {
			t.Fatalf("byte %d is %#x", i, c)
		}
	}
}

// A ring connects again and again, to one ring or another, over whatever wire, and goes on
// where its queues are.
func TestRingsConnectAgain(t *testing.T) {
	onAllWires(t, func(t *testing.T, change func(*descriptors.CreateEndpointBody), options ...option) {
		w, a, b := ringPair(t, change, options...)
		c := w.b.newRing(b.memory, change)
		for i, to := range []*ring{b, c, c, b} {
			if i > 0 {
				connect(&vi{n: a.n, id: a.id}, &vi{n: to.n, id: to.id})
			}
			for n := range 3 {
				message, payload := pattern(ringMessage, uint64(i)), pattern(3000, uint64(n))
				s, frame := exchange(a, to, message, payload, 0, 3000)
				arrived(t, s, message, 3000, 3000, 0, 0)
				mustEqual(t, frame, payload)
			}
			late, _ := to.receive(100)
			for _, r := range []*ring{a, to} {
				do(r.n, descriptors.OpDisconnect, descriptors.EndpointBody{Endpoint: r.id})
			}
			if st := late.LoadStatus(); st&descriptors.StatusFlushed == 0 {
				t.Fatalf("%v", st)
			}
			unsent := a.transmit(pattern(ringMessage, 1), nil, 0)
			w.settle()
			if st := unsent.LoadStatus(); st != descriptors.StatusDone|descriptors.StatusFlushed {
				t.Fatalf("%v", st)
			}
		}
	})
}
