package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// cq is a completion queue and its host side.
type cq struct {
	n       *node
	id      uint32
	log2    uint8
	entries []datasheet.Completion
	index   *uint32
	taken   uint32
}

func (n *node) newCQ(log2 uint8, vector uint16) *cq {
	mem, _, iova := n.alloc(datasheet.CompletionSize << log2)
	word, _, at := n.alloc(4)
	c := &cq{n: n, log2: log2, entries: datasheet.CompletionsAt(mem), index: datasheet.IndexAt(word)}
	r := do(n, datasheet.OpCreateCQ, datasheet.CreateCQBody{IOVA: iova, IndexIOVA: at, Vector: vector, Log2: log2})
	c.id = datasheet.Reply[datasheet.CQBody](r).CQ
	return c
}

// next takes the oldest entry, if there is one.
func (c *cq) next() (datasheet.Completion, bool) {
	e := &c.entries[c.taken&uint32(len(c.entries)-1)]
	if e.LoadFlags()&datasheet.CompletionPhase != datasheet.PhaseOf(c.taken, c.log2) {
		return datasheet.Completion{}, false
	}
	c.taken++
	datasheet.StoreIndex(c.index, c.taken)
	return *e, true
}

func (c *cq) arm() {
	c.n.e.Doorbell(datasheet.CQPage(c.n.e.Limits().Endpoints, c.id)+datasheet.DoorbellCQArm, datasheet.ArmWord(c.taken))
}

// pairWithCQs connects two VIs, the first with both queues on one CQ.
func pairWithCQs(t *testing.T, log2 uint8, vector uint16) (w *world, v, p *vi, c *cq) {
	w = newWorld(t)
	c = w.a.newCQ(log2, vector)
	v = w.a.newVI(w.a.memory(0, 0), func(b *datasheet.CreateEndpointBody) { b.SendCQ, b.RecvCQ = c.id, c.id })
	p = w.b.newVI(w.b.memory(0, 0), nil)
	connect(v, p)
	return w, v, p, c
}

func TestCompletionQueue(t *testing.T) {
	w, v, p, c := pairWithCQs(t, 2, datasheet.NoVector)
	for i := range uint32(50) {
		if sent, _, _ := message(v, p, []byte("x")); sent.Failed() {
			t.Fatal(sent)
		}
		if _, received, _ := message(p, v, []byte("y")); received.Failed() {
			t.Fatal(received)
		}
		for _, want := range []struct {
			flags  uint32
			status datasheet.Status
		}{{0, datasheet.StatusDone}, {datasheet.CompletionReceive, datasheet.StatusDone | datasheet.StatusOpReceive}} {
			e, ok := c.next()
			if !ok || e.Endpoint != v.id || e.Index != i || e.Flags&^datasheet.CompletionPhase != want.flags || e.Status != uint32(want.status) {
				t.Fatalf("entry %d: %v %+v, want %+v", i, ok, e, want)
			}
		}
		if e, ok := c.next(); ok {
			t.Fatalf("an entry too many: %+v", e)
		}
	}
	refused(t, w.a, "destroying a CQ in use", datasheet.OpDestroyCQ, datasheet.CQBody{CQ: c.id}, datasheet.ResultResource)
}

func TestCompletionQueueRefusals(t *testing.T) {
	w := newWorld(t)
	good := datasheet.CreateCQBody{IOVA: busBase, IndexIOVA: busBase + 4096, Vector: datasheet.NoVector, Log2: 4}
	for name, spoil := range map[string]func(*datasheet.CreateCQBody){
		"no ring": func(b *datasheet.CreateCQBody) { b.IOVA = 0 }, "misaligned ring": func(b *datasheet.CreateCQBody) { b.IOVA += 8 },
		"no index": func(b *datasheet.CreateCQBody) { b.IndexIOVA = 0 }, "misaligned index": func(b *datasheet.CreateCQBody) { b.IndexIOVA += 2 },
		"vector": func(b *datasheet.CreateCQBody) { b.Vector = 64 }, "one entry": func(b *datasheet.CreateCQBody) { b.Log2 = 0 },
		"too many entries": func(b *datasheet.CreateCQBody) { b.Log2 = datasheet.MaxCQLog2 + 1 },
	} {
		b := good
		spoil(&b)
		refused(t, w.a, name, datasheet.OpCreateCQ, b, datasheet.ResultInvalidParameter)
	}
	b := good
	b.IOVA = 0x10
	refused(t, w.a, "ring that the bus refuses", datasheet.OpCreateCQ, b, datasheet.ResultDMAFault)
	refused(t, w.a, "destroying nothing", datasheet.OpDestroyCQ, datasheet.CQBody{CQ: 0}, datasheet.ResultInvalidParameter)
}

// TestCompletionQueueOverrun: a CQ that is too small dies, its VIs end in the
// error state and everything else goes on.
func TestCompletionQueueOverrun(t *testing.T) {
	w, v, p, c := pairWithCQs(t, 1, 5)
	other, peer := w.a.newVI(v.handle, nil), w.b.newVI(p.handle, nil)
	connect(other, peer)
	for range 3 {
		message(v, p, []byte("nobody looks"))
	}
	w.settle()
	var codes []datasheet.EventCode
	for _, e := range w.a.events {
		codes = append(codes, e.Code)
	}
	if len(codes) != 2 || codes[0] != datasheet.EventCQOverrun || w.a.events[0].CQ != c.id || codes[1] != datasheet.EventConnectionLost {
		t.Fatalf("events %+v", w.a.events)
	}
	if v.state() != datasheet.StateError || p.state() != datasheet.StateError {
		t.Fatalf("states %v, %v", v.state(), p.state())
	}
	if w.a.irqs[5] == 0 {
		t.Error("nobody was woken")
	}
	refused(t, w.a, "a VI on a dead CQ", datasheet.OpCreateEndpoint, datasheet.CreateEndpointBody{
		SendIOVA: busBase, RecvIOVA: busBase, MaxTransfer: 1, SendCQ: c.id, RecvCQ: datasheet.NoCQ, Kind: datasheet.KindVI,
		Reliability: datasheet.Unreliable, SendLog2: 1, RecvLog2: 1}, datasheet.ResultInvalidParameter)
	if sent, received, _ := message(other, peer, []byte("x")); sent.Failed() || received.Failed() {
		t.Fatalf("another VI: %v, %v", sent, received)
	}
}

func TestInterrupts(t *testing.T) {
	w, v, p, c := pairWithCQs(t, 4, 7)
	x := w.b.newVI(p.handle, func(b *datasheet.CreateEndpointBody) { b.SendVector, b.RecvVector = 8, 9 })
	y := w.a.newVI(v.handle, nil)
	connect(x, y)

	message(v, p, []byte("not armed"))
	if n := w.a.irqs[7]; n != 0 {
		t.Fatalf("%d interrupts without arming", n)
	}
	c.arm()
	w.settle()
	if n := w.a.irqs[7]; n != 1 {
		t.Fatalf("%d interrupts for what was there already", n)
	}
	c.next()
	c.arm()
	w.settle()
	if n := w.a.irqs[7]; n != 1 {
		t.Fatalf("%d interrupts: one for nothing", n)
	}
	message(v, p, []byte("armed"))
	message(v, p, []byte("only the first one interrupts"))
	if n := w.a.irqs[7]; n != 2 {
		t.Fatalf("%d interrupts, want 2", n)
	}

	page := datasheet.EndpointPage(x.id)
	w.b.e.Doorbell(page+datasheet.DoorbellRecvArm, datasheet.ArmWord(0))
	message(y, x, []byte("z"))
	message(y, x, []byte("z"))
	w.b.e.Doorbell(page+datasheet.DoorbellSendArm, datasheet.ArmWord(0))
	message(x, y, []byte("z"))
	if w.b.irqs[9] != 1 || w.b.irqs[8] != 1 {
		t.Fatalf("interrupts %v", w.b.irqs)
	}
	w.b.e.Doorbell(page+datasheet.DoorbellRecvArm, datasheet.ArmWord(1))
	w.settle()
	if w.b.irqs[9] != 2 {
		t.Fatalf("interrupts %v", w.b.irqs)
	}
}

// TestInterruptsAreBatched: many completions in one step are one interrupt.
func TestInterruptsAreBatched(t *testing.T) {
	w, v, p, c := pairWithCQs(t, 6, 7)
	for range 20 {
		d, _ := v.descriptor(10)
		v.postRecv(d)
	}
	c.arm()
	w.settle()
	for range 20 {
		d, _ := p.descriptor(10)
		p.postSend(d)
	}
	w.settle()
	if w.a.irqs[7] != 1 || c.count() != 20 {
		t.Fatalf("%d interrupts, %d completions", w.a.irqs[7], c.taken)
	}
}

func (c *cq) count() (n int) {
	for {
		if _, ok := c.next(); !ok {
			return n
		}
		n++
	}
}

func TestBadDoorbells(t *testing.T) {
	w, v, p := pair(t, nil)
	page := datasheet.EndpointPage(v.id)
	limits := w.a.e.Limits()
	counted := uint64(0)
	for _, c := range []struct {
		name   string
		offset uint64
		value  uint32
		event  bool
	}{
		{"more than the queue holds", page, v.send.producer + 65, true},
		{"far ahead", page + datasheet.DoorbellRecv, 0x80000000, true},
		{"endpoint that is not there", datasheet.EndpointPage(v.id + 1), 1, false},
		{"endpoint 0", 0, 1, false},
		{"CQ that is not there", datasheet.CQPage(limits.Endpoints, 3), datasheet.ArmWord(0), false},
		{"offset without a doorbell", page + 4, 1, false},
		{"reserved for rings", page + datasheet.DoorbellRing, 1, false},
		{"past the end", uint64(limits.Endpoints+limits.CQs) * datasheet.PageSize, 1, false},
		{"far past the end", 1 << 63, 1, false},
		{"arm word without its flag", page + datasheet.DoorbellSendArm, 3, false},
		{"arm of a queue without a vector", page + datasheet.DoorbellSendArm, datasheet.ArmWord(0), false},
	} {
		before := len(w.a.events)
		w.a.e.Doorbell(c.offset, c.value)
		w.settle()
		counted++
		if n := w.a.e.Counter(datasheet.CounterBadDoorbells); n != counted {
			t.Errorf("%s: %d counted, want %d", c.name, n, counted)
		}
		if got := len(w.a.events) > before; got != c.event {
			t.Errorf("%s: event %v", c.name, got)
		}
		if c.event && w.a.events[before].Code != datasheet.EventVIOverrun {
			t.Errorf("%s: %+v", c.name, w.a.events[before])
		}
	}
	if sent, received, _ := message(v, p, []byte("x")); sent.Failed() || received.Failed() {
		t.Fatalf("afterwards: %v, %v", sent, received)
	}
	// A producer index that goes back would take posted descriptors back.
	d, _ := v.descriptor(10)
	v.postSend(d)
	w.settle()
	w.a.e.Doorbell(page, v.send.producer-2)
	w.settle()
	r, _ := p.descriptor(10)
	p.postRecv(r)
	w.run("the message", func() bool { return d.Status().Done() && r.Status().Done() })
}

func TestFullQueue(t *testing.T) {
	w, v, p := pair(t, nil)
	var ds []*descriptors.Descriptor
	for range 1 << queueLog2 {
		d, _ := v.descriptor(10)
		ds = append(ds, d)
	}
	v.postSend(ds...)
	w.settle()
	if n := len(w.a.events); n != 0 {
		t.Fatalf("events %+v", w.a.events)
	}
	for range ds {
		r, _ := p.descriptor(10)
		p.postRecv(r)
	}
	w.run("all of them", func() bool { return ds[len(ds)-1].Status().Done() })
}

// TestArmBesideBadDoorbell stores to an offset without a doorbell in the page
// of a completion queue, right after the arm word: the interrupt comes.
func TestArmBesideBadDoorbell(t *testing.T) {
	w, v, p, c := pairWithCQs(t, 4, 5)
	page := datasheet.CQPage(w.a.e.Limits().Endpoints, c.id)
	c.arm()
	w.a.e.Doorbell(page+datasheet.DoorbellRecv, 1)
	if sent, _, _ := message(v, p, []byte("x")); sent.Failed() {
		t.Fatal(sent)
	}
	if n := w.a.irqs[5]; n != 1 {
		t.Fatalf("%d interrupts", n)
	}
	if n := w.a.e.Counter(datasheet.CounterBadDoorbells); n != 1 {
		t.Fatalf("%d bad doorbells", n)
	}
}

// TestNumbersRest makes and destroys objects: a number or handle does not come
// back soon, and a doorbell for the old queue does not reach the new one.
func TestNumbersRest(t *testing.T) {
	w := newWorld(t)
	old := w.a.newCQ(4, 5)
	do(w.a, datasheet.OpDestroyCQ, datasheet.CQBody{CQ: old.id})
	seen := map[uint32]bool{old.id: true}
	for range w.a.e.Limits().CQs - 1 {
		c := w.a.newCQ(1, 5)
		if seen[c.id] {
			t.Fatalf("completion queue %d was given out again", c.id)
		}
		seen[c.id] = true
		do(w.a, datasheet.OpDestroyCQ, datasheet.CQBody{CQ: c.id})
	}
	if c := w.a.newCQ(4, 5); c.id != old.id {
		t.Fatalf("number %d is not given out any more, but %d", old.id, c.id)
	}
	handles := map[uint32]bool{}
	for range 20_000 {
		h := w.a.memory(0, 0)
		if handles[h] {
			t.Fatalf("handle %#x was given out again after %d", h, len(handles))
		}
		handles[h] = true
		do(w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: h})
	}
}
