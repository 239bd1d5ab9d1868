package engine_test

import (
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func (r *ring) destroy() {
	r.n.w.t.Helper()
	do(r.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: r.id})
	do(r.n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: r.id})
}

// Rings are zeroed pages of device memory, one behind the other, and no two share a page.
func TestRingMemory(t *testing.T) {
	w := newRingWorld(t)
	memory := w.a.memory(0, 0)
	owner := map[uint32]uint32{}
	for range 3 {
		r := w.a.newRing(memory, func(b *datasheet.CreateEndpointBody) { b.RecvLog2 = ringLog2 + 1 })
		end := r.at.Table + datasheet.PayloadEntries*datasheet.RingPlaceSize
		if r.at.Send%datasheet.PageSize != 0 || r.at.Recv != r.at.Send+ringSlots*datasheet.RingSlotSize ||
			r.at.Table != r.at.Recv+2*ringSlots*datasheet.RingSlotSize || r.at.Send < sramFrom || end > sramSize {
			t.Fatalf("%+v", r.at)
		}
		for i := r.at.Send; i < end; i++ {
			if w.a.sram[i] != 0 {
				t.Fatalf("byte %#x is %#x", i, w.a.sram[i])
			}
			if page := i / datasheet.PageSize; owner[page] != 0 && owner[page] != r.id {
				t.Fatalf("page %#x is of endpoints %d and %d", page, owner[page], r.id)
			}
			owner[i/datasheet.PageSize] = r.id
			w.a.sram[i] = 0xee
		}
	}
}

func TestRingRefusals(t *testing.T) {
	w := newRingWorld(t)
	n := w.a
	free := n.e.FreeSRAM()
	for name, c := range map[string]struct {
		change func(*datasheet.CreateEndpointBody)
		why    datasheet.Result
	}{
		"a send ring of its own":    {func(b *datasheet.CreateEndpointBody) { b.SendIOVA = busBase }, datasheet.ResultInvalidParameter},
		"a receive ring of its own": {func(b *datasheet.CreateEndpointBody) { b.RecvIOVA = busBase }, datasheet.ResultInvalidParameter},
		"too short for a message":   {func(b *datasheet.CreateEndpointBody) { b.MaxTransfer = ringMessage - 1 }, datasheet.ResultInvalidMTU},
		"too long":                  {func(b *datasheet.CreateEndpointBody) { b.MaxTransfer = datasheet.MaxTransfer + 1 }, datasheet.ResultInvalidMTU},
		"rights":                    {func(b *datasheet.CreateEndpointBody) { b.Rights = datasheet.AccessRDMAWrite }, datasheet.ResultInvalidParameter},
		"options":                   {func(b *datasheet.CreateEndpointBody) { b.Options = datasheet.EndpointBreaks }, datasheet.ResultInvalidParameter},
		"a shared queue":            {func(b *datasheet.CreateEndpointBody) { b.Options = datasheet.EndpointShares }, datasheet.ResultInvalidParameter},
		"one slot":                  {func(b *datasheet.CreateEndpointBody) { b.SendLog2 = 0 }, datasheet.ResultInvalidParameter},
		"too many slots":            {func(b *datasheet.CreateEndpointBody) { b.RecvLog2 = datasheet.MaxQueueLog2 + 1 }, datasheet.ResultInvalidParameter},
		"no such tag":               {func(b *datasheet.CreateEndpointBody) { b.Ptag = 77 }, datasheet.ResultInvalidPtag},
		"no such CQ":                {func(b *datasheet.CreateEndpointBody) { b.SendCQ = 5 }, datasheet.ResultInvalidParameter},
		"no such vector":            {func(b *datasheet.CreateEndpointBody) { b.RecvVector = datasheet.Vectors }, datasheet.ResultInvalidParameter},
	} {
		if r := n.wait(start(n, datasheet.OpCreateEndpoint, ringBody(c.change))); r.Result != c.why || r.Field == 0 {
			t.Errorf("%s: %v, field %d", name, r.Result, r.Field)
		}
	}
	// More slots than there is device memory.
	if r := n.wait(start(n, datasheet.OpCreateEndpoint, ringBody(func(b *datasheet.CreateEndpointBody) { b.SendLog2 = datasheet.MaxQueueLog2 }))); r.Result != datasheet.ResultResource {
		t.Errorf("too large: %v", r.Result)
	}
	if n.e.FreeSRAM() != free {
		t.Errorf("%d bytes of device memory have gone", free-n.e.FreeSRAM())
	}
	if n.e.Features()&datasheet.FeatureRing == 0 {
		t.Error("no FeatureRing")
	}
}

// What is of a VI alone is refused of a ring, and the other way round.
func TestRingsAreNotVIs(t *testing.T) {
	w, a, b := ringPair(t, func(b *datasheet.CreateEndpointBody) { b.Reliability = datasheet.ReliableDelivery })
	idle := w.a.newRing(a.memory, nil)
	as := func(r *ring) *vi { return &vi{n: r.n, id: r.id, handle: r.memory} }
	for _, c := range []struct {
		name string
		id   uint16
		want datasheet.Result
	}{
		{"modify", start(w.a, datasheet.OpModifyEndpoint, datasheet.ModifyEndpointBody{Endpoint: idle.id, MaxTransfer: 4096, Reliability: datasheet.Unreliable}), datasheet.ResultInvalidState},
		{"deregister its memory", start(w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: a.handle}), datasheet.ResultResource},
		{"modify its memory", start(w.a, datasheet.OpModifyMemory, datasheet.ModifyMemoryBody{Handle: a.handle, Access: datasheet.AccessRDMAWrite}), datasheet.ResultResource},
		{"a tag of another entry", start(w.a, datasheet.OpSetPayload, datasheet.SetPayloadBody{Endpoint: a.id, Address: hostBase, Handle: a.memory, Length: 1, Entry: 3, Tag: 4}), datasheet.ResultInvalidParameter},
		{"memory that is not there", start(w.a, datasheet.OpSetPayload, datasheet.SetPayloadBody{Endpoint: a.id, Address: 1, Handle: a.memory, Length: 1, Entry: 3, Tag: 3}), datasheet.ResultInvalidParameter},
		{"an entry that is not there", start(w.a, datasheet.OpSetPayload, datasheet.SetPayloadBody{Endpoint: a.id, Address: hostBase, Handle: a.memory, Length: 1, Entry: 256, Tag: 256}), datasheet.ResultInvalidParameter},
		{"a tag for a VI", start(w.a, datasheet.OpSetPayload, datasheet.SetPayloadBody{Endpoint: w.a.newVI(a.memory, nil).id, Address: hostBase, Handle: a.memory, Length: 1, Entry: 3, Tag: 3}), datasheet.ResultInvalidParameter},
		{"destroy while connected", start(w.a, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: a.id}), datasheet.ResultInvalidState},
	} {
		if r := w.a.wait(c.id); r.Result != c.want || r.Field == 0 {
			t.Errorf("%s: %v, field %d", c.name, r.Result, r.Field)
		}
	}
	// A request says of what kind it is, and only one of that kind can accept it.
	plain := w.b.newVI(b.memory, func(b *datasheet.CreateEndpointBody) { b.MaxTransfer = ringMessage + maxPayload })
	reliable := func(b *datasheet.CreateEndpointBody) { b.Reliability = datasheet.ReliableDelivery }
	for _, c := range []struct {
		from, wrong, right *vi
		kind               datasheet.Kind
	}{
		{as(w.a.newRing(a.memory, reliable)), plain, as(w.b.newRing(b.memory, reliable)), datasheet.KindRing},
		{w.a.newVI(a.memory, func(b *datasheet.CreateEndpointBody) { b.MaxTransfer = ringMessage + maxPayload }), as(w.b.newRing(b.memory, reliable)), plain, datasheet.KindVI},
	} {
		wait := start(w.b, datasheet.OpConnectWait, datasheet.ConnectWaitBody{TimeoutMS: 10_000, Local: disc("test")})
		request := start(w.a, datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: c.from.id, TimeoutMS: 10_000, RemoteMAC: w.b.e.MAC(), Remote: disc("test")})
		e := w.b.wait(wait)
		got := datasheet.Reply[datasheet.ConnectionReply](&e)
		if got.Kind != c.kind {
			t.Errorf("the client is a %v, want %v", got.Kind, c.kind)
		}
		accept := datasheet.ConnectAcceptBody{Connection: got.Connection, Endpoint: c.wrong.id, TimeoutMS: 10_000}
		refused(t, w.b, "another kind", datasheet.OpConnectAccept, accept, datasheet.ResultInvalidParameter)
		accept.Endpoint = c.right.id
		do(w.b, datasheet.OpConnectAccept, accept)
		if r := w.a.wait(request); r.Result != datasheet.ResultSuccess {
			t.Errorf("%v: %v", c.kind, r.Result)
		}
	}
}

// Without device memory there are no rings.
func TestNoRingsWithoutDeviceMemory(t *testing.T) {
	w := newWorld(t)
	refused(t, w.a, "no device memory", datasheet.OpCreateEndpoint, ringBody(nil), datasheet.ResultNotSupported)
	if w.a.e.Features()&datasheet.FeatureRing != 0 {
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
		body := ringBody(func(b *datasheet.CreateEndpointBody) {
			b.SendLog2, b.RecvLog2 = uint8(1+r.IntN(9)), uint8(1+r.IntN(9))
			if r.IntN(2) == 0 {
				b.Reliability = datasheet.ReliableDelivery
			}
		})
		before := w.a.e.FreeSRAM()
		if reply := w.a.wait(start(w.a, datasheet.OpCreateEndpoint, body)); reply.Result == datasheet.ResultResource {
			if full++; w.a.e.FreeSRAM() != before {
				t.Fatal("a ring that was refused has taken device memory")
			}
			continue
		} else if reply.Result == datasheet.ResultSuccess {
			do(w.a, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: datasheet.Reply[datasheet.EndpointCreated](&reply).Endpoint})
		}
		same := func(b *datasheet.CreateEndpointBody) { *b = body }
		if w.b.e.FreeSRAM() < before { // it may have no room for it, or no piece
			continue
		}
		reply := w.b.wait(start(w.b, datasheet.OpCreateEndpoint, body))
		if reply.Result != datasheet.ResultSuccess {
			continue
		}
		do(w.b, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: datasheet.Reply[datasheet.EndpointCreated](&reply).Endpoint})
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
	w.a.newRing(a, func(b *datasheet.CreateEndpointBody) { b.SendLog2, b.RecvLog2 = 11, 11 }) // all of it, in one piece
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
	onAllWires(t, func(t *testing.T, change func(*datasheet.CreateEndpointBody), options ...option) {
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
				do(r.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: r.id})
			}
			if st := late.LoadStatus(); st&datasheet.StatusFlushed == 0 {
				t.Fatalf("%v", st)
			}
			unsent := a.transmit(pattern(ringMessage, 1), nil, 0)
			w.settle()
			if st := unsent.LoadStatus(); st != datasheet.StatusDone|datasheet.StatusFlushed {
				t.Fatalf("%v", st)
			}
		}
	})
}
