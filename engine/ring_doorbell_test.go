package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// ringBell is the offset of one of a ring's doorbells.
func (r *ring) bell(doorbell uint64) uint64 {
	return datasheet.EndpointPage(r.id) + datasheet.DoorbellRing + doorbell
}

// Doorbells of rings in shared memory are found, next to those of VIs, and so are those that
// Ringer gives.
func TestRingDoorbellsInMemory(t *testing.T) {
	w := newRingWorld(t)
	limits := w.a.e.Limits
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
			datasheet.SetMarks(bar, uint64(r.id))
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
