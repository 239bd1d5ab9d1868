package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// ringBell is the offset of one of a ring's doorbells.
func (r *ring) bell(doorbell uint64) uint64 {
	return datasheet.EndpointPage(r.id) + datasheet.DoorbellRing + doorbell
}

// A ring has its doorbells alone, and a VI its own: the others are counted, and have no effect.
func TestRingDoorbellsAreNotAVIs(t *testing.T) {
	w, a, _ := ringPair(t, nil)
	v := w.a.newVI(a.memory, nil)
	bad := w.a.e.Counter(datasheet.CounterBadDoorbells)
	ignored := func(what string, offset uint64, value uint32) {
		t.Helper()
		w.a.e.Doorbell(offset, value)
		w.settle()
		if bad++; w.a.e.Counter(datasheet.CounterBadDoorbells) != bad {
			t.Errorf("%s was not counted", what)
		}
	}
	for _, doorbell := range []uint64{datasheet.DoorbellSend, datasheet.DoorbellRecv, datasheet.DoorbellSendArm, datasheet.DoorbellRecvArm} {
		ignored("a VI's doorbell of a ring", datasheet.EndpointPage(a.id)+doorbell, 1)
		ignored("a ring's doorbell of a VI", datasheet.EndpointPage(v.id)+datasheet.DoorbellRing+doorbell, 1)
		ignored("a ring's doorbell of nothing", datasheet.EndpointPage(100)+datasheet.DoorbellRing+doorbell, 1)
		ignored("a ring's doorbell of a completion queue", datasheet.CQPage(w.a.e.Limits().Endpoints, 0)+datasheet.DoorbellRing+doorbell, 1)
	}
	ignored("no doorbell", a.bell(0x10), 1)
	ignored("no doorbell", a.bell(0x100), 1)
	// An index that cannot be is an overrun, as of a VI.
	ignored("too many slots", a.bell(datasheet.DoorbellSend), ringSlots+1)
	if e := w.a.events; len(e) != 1 || e[0].Code != datasheet.EventVIOverrun || e[0].Endpoint != a.id || e[0].Detail != ringSlots+1 {
		t.Errorf("%+v", e)
	}
	for _, id := range []uint32{a.id, v.id} {
		q := datasheet.Reply[datasheet.EndpointReply](do(w.a, datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: id}))
		if q.SendProducer|q.RecvProducer != 0 {
			t.Errorf("endpoint %d: %+v", id, *q)
		}
	}
}

// Doorbells of rings in shared memory are found, next to those of VIs, and so are those that
// Ringer gives.
func TestRingDoorbellsInMemory(t *testing.T) {
	w := newRingWorld(t)
	limits := w.a.e.Limits()
	bar := alignedBytes(int(limits.Endpoints+limits.CQs) * datasheet.PageSize)
	if !w.a.e.MapDoorbells(bar) {
		t.Fatal("the BAR was refused")
	}
	h, g := w.a.memory(0, 0), w.b.memory(0, 0)
	for i := range 80 { // more pages than a step looks at
		w.a.newVI(h, nil)
		r := w.a.newRing(h, func(b *datasheet.CreateEndpointBody) {
			b.SendLog2, b.RecvLog2, b.SendVector, b.RecvVector = 1, 1, 5, 6
		})
		p := w.b.newRing(g, func(b *datasheet.CreateEndpointBody) { b.SendLog2, b.RecvLog2 = 1, 1 })
		connect(&vi{n: r.n, id: r.id}, &vi{n: p.n, id: p.id})
		at := func(doorbell, value uint64) {
			datasheet.StoreIndex(datasheet.IndexAt(bar[r.bell(doorbell):]), uint32(value))
		}
		send := w.b.e.Ringer(p.bell(datasheet.DoorbellSend))
		if send == nil {
			t.Fatal("no such doorbell")
		}
		s, _ := p.receive(-1)
		fill(&r.send[0], pattern(ringMessage, uint64(i)), nil, 0)
		fill(&r.recv[0], nil, nil, 0)
		at(datasheet.DoorbellRecv, 1)
		at(datasheet.DoorbellSend, 1)
		at(datasheet.DoorbellSendArm, uint64(datasheet.ArmWord(0)))
		at(datasheet.DoorbellRecvArm, uint64(datasheet.ArmWord(0)))
		w.run("a message", func() bool { return s.LoadStatus().Done() && w.a.irqs[5] == i+1 })
		arrived(t, s, pattern(ringMessage, uint64(i)), 0, 0, 0, 0)
		fill(&p.send[0], pattern(ringMessage, uint64(i+1)), nil, 0)
		send(1)
		w.run("a message back", func() bool { return r.recv[0].LoadStatus().Done() && w.a.irqs[6] == i+1 })
		arrived(t, &r.recv[0], pattern(ringMessage, uint64(i+1)), 0, 0, 0, 0)
	}
	if n := w.a.e.Counter(datasheet.CounterBadDoorbells); n != 0 {
		t.Errorf("%d bad doorbells", n)
	}
}

// Rings use completion queues as VIs do.
func TestRingCompletionQueues(t *testing.T) {
	w := newRingWorld(t)
	h, g := w.a.memory(0, 0), w.b.memory(0, 0)
	c := w.b.newCQ(3, 7)
	a := w.a.newRing(h, nil)
	b := w.b.newRing(g, func(b *datasheet.CreateEndpointBody) { b.SendCQ, b.RecvCQ = c.id, c.id })
	connect(&vi{n: a.n, id: a.id}, &vi{n: b.n, id: b.id})
	for i := range uint32(40) {
		c.arm()
		s, _ := b.receive(200)
		a.transmit(pattern(ringMessage, uint64(i)), pattern(200, uint64(i)), 0)
		var e datasheet.Completion
		w.run("a completion", func() (ok bool) { e, ok = c.next(); return ok })
		if e.Endpoint != b.id || e.Index != i || datasheet.Status(e.Status) != s.LoadStatus() || e.Flags&datasheet.CompletionReceive == 0 {
			t.Fatalf("message %d: %+v, slot %v", i, e, s.LoadStatus())
		}
		arrived(t, s, pattern(ringMessage, uint64(i)), 200, 200, 0, 0)
		b.transmit(pattern(ringMessage, 0), nil, 0)
		w.run("a completion", func() (ok bool) { e, ok = c.next(); return ok })
		if e.Endpoint != b.id || e.Index != i || e.Status != uint32(datasheet.StatusDone) || e.Flags&datasheet.CompletionReceive != 0 {
			t.Fatalf("send %d: %+v", i, e)
		}
		if w.b.irqs[7] != int(i)+1 {
			t.Fatalf("message %d: %d interrupts", i, w.b.irqs[7])
		}
	}
	// A queue that loses an entry ends the ring.
	for range 5 {
		b.receive(-1)
		a.transmit(pattern(ringMessage, 0), nil, 0)
		b.transmit(pattern(ringMessage, 0), nil, 0)
		w.settle()
	}
	q := datasheet.Reply[datasheet.EndpointReply](do(w.b, datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: b.id}))
	if q.State != datasheet.StateError {
		t.Errorf("the ring is %v", q.State)
	}
	b.destroy()
	do(w.b, datasheet.OpDestroyCQ, datasheet.CQBody{CQ: c.id})
}
