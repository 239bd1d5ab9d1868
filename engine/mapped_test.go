package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestMappedDoorbells drives an engine through doorbells in shared memory, for
// more endpoints than one step looks at.
func TestMappedDoorbells(t *testing.T) {
	w := newWorld(t)
	limits := w.a.e.Limits
	bar := alignedBytes(int(limits.Endpoints+limits.CQs) * datasheet.PageSize)
	if w.a.e.MapDoorbells(bar[:4096]) {
		t.Fatal("a BAR that is too small was taken")
	}
	if w.a.e.MapDoorbells(bar[1:]) {
		t.Fatal("a misaligned BAR was taken")
	}
	if !w.a.e.MapDoorbells(bar) {
		t.Fatal("a good BAR was refused")
	}
	at := func(offset uint64) *uint32 { return datasheet.IndexAt(bar[offset:]) }
	store := func(offset uint64, value uint32) {
		datasheet.StoreIndex(at(offset), value)
		datasheet.SetMarks(bar, offset/datasheet.PageSize)
	}
	h, g := w.a.memory(0, 0), w.b.memory(0, 0)
	c := w.a.newCQ(4, 3)
	for i := range 200 {
		v := w.a.newVI(h, func(b *datasheet.CreateEndpointBody) { b.SendCQ, b.RecvVector = c.id, 4 })
		p := w.b.newVI(g, nil)
		connect(v, p)
		s, out := v.descriptor(100)
		r, in := p.descriptor(100)
		copy(out[0], pattern(100, uint64(i)))
		p.postRecv(r)
		page := datasheet.EndpointPage(v.id)
		v.send.tokens[0] = s.Token()
		store(page+datasheet.DoorbellSend, 1)
		w.run("a message", func() bool { return s.Status().Done() && r.Status().Done() })
		mustEqual(t, in[0], pattern(100, uint64(i)))
		if _, ok := c.next(); !ok {
			t.Fatal("no completion entry")
		}

		d, _ := v.descriptor(100)
		v.recv.tokens[0] = d.Token()
		store(page+datasheet.DoorbellRecv, 1)
		store(page+datasheet.DoorbellRecvArm, datasheet.ArmWord(0))
		back, _ := p.descriptor(100)
		w.run("the doorbells", func() bool { return *at(page + datasheet.DoorbellRecvArm) == 0 })
		p.postSend(back)
		w.run("a message back", func() bool { return back.Status().Done() && d.Status().Done() })
		must.Be(t, w.a.irqs[4], i+1, "message %d: interrupts", i)
	}
	store(datasheet.CQPage(limits.Endpoints, c.id), datasheet.ArmWord(c.taken-1))
	w.run("an interrupt", func() bool { return w.a.irqs[3] == 1 })

	// A value that makes no sense is judged once.
	bad := w.a.newVI(h, nil)
	store(datasheet.EndpointPage(bad.id), 5000)
	w.run("the event", func() bool { return len(w.a.events) > 0 })
	for range 100 {
		w.a.e.Step()
	}
	if len(w.a.events) != 1 || w.a.events[0].Code != datasheet.EventVIOverrun {
		t.Fatalf("events %+v", w.a.events)
	}
	w.a.e.Reset()
	must.Be(t, *at(datasheet.EndpointPage(bad.id)), 0, "a doorbell page survived the reset")
}
