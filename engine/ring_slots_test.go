package engine_test

import (
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func reliableBody(b *datasheet.CreateEndpointBody) { b.Reliability = datasheet.ReliableDelivery }

// zeroes checks that nobody has written to mem.
func zeroes(t testing.TB, what string, mem []byte) {
	t.Helper()
	if i := slices.IndexFunc(mem, func(c byte) bool { return c != 0 }); i >= 0 {
		t.Fatalf("%s: byte %d of %d was written", what, i, len(mem))
	}
}

// Slots that make no sense end with the status of what is wrong first, and an unreliable ring
// goes on.
func TestRingBadSlots(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(s *datasheet.RingSlot)
		both  datasheet.Status // as a send and as a receive
		recv  datasheet.Status // as a receive, if that is another
	}{
		"two segments":     {func(s *datasheet.RingSlot) { s.Segments = 2 }, datasheet.StatusFormatError, 0},
		"RDMA write":       {func(s *datasheet.RingSlot) { s.Control = datasheet.OpRDMAWrite }, datasheet.StatusFormatError, 0},
		"RDMA read":        {func(s *datasheet.RingSlot) { s.Control = datasheet.OpRDMARead }, datasheet.StatusFormatError, 0},
		"fence":            {func(s *datasheet.RingSlot) { s.Control = datasheet.ControlQueueFence }, datasheet.StatusFormatError, 0},
		"inline":           {func(s *datasheet.RingSlot) { s.Control = datasheet.ControlInline }, datasheet.StatusFormatError, 0},
		"reserved control": {func(s *datasheet.RingSlot) { s.Control = 0x8000 }, datasheet.StatusFormatError, 0},
		"reserved":         {func(s *datasheet.RingSlot) { s.Reserved = 1 }, datasheet.StatusFormatError, 0},
		"handle":           {func(s *datasheet.RingSlot) { s.Payload.Handle++ }, datasheet.StatusProtectionError, 0},
		"handle zero":      {func(s *datasheet.RingSlot) { s.Payload.Handle = 0 }, datasheet.StatusProtectionError, 0},
		"address":          {func(s *datasheet.RingSlot) { s.Payload.Address += memSize }, datasheet.StatusProtectionError, 0},
		"wrapped":          {func(s *datasheet.RingSlot) { s.Payload.Address = ^uint64(0) - 5 }, datasheet.StatusProtectionError, 0},
		"longer than the region": {func(s *datasheet.RingSlot) {
			s.Payload.Address, s.Payload.Length, s.Length = hostBase+memSize-50, 100, 100
		}, datasheet.StatusProtectionError, 0},
		"longer than the segment":  {func(s *datasheet.RingSlot) { s.Length = 101 }, datasheet.StatusLengthError, datasheet.StatusDone},
		"longer than MaxTransfer":  {func(s *datasheet.RingSlot) { s.Length, s.Payload.Length = maxPayload+1, maxPayload+1 }, datasheet.StatusLengthError, datasheet.StatusDone},
		"wraps with the message":   {func(s *datasheet.RingSlot) { s.Length, s.Payload.Length = ^uint32(0), ^uint32(0) }, datasheet.StatusLengthError, datasheet.StatusProtectionError},
		"length without a segment": {func(s *datasheet.RingSlot) { s.Segments = 0 }, datasheet.StatusLengthError, datasheet.StatusDone},
	} {
		w, a, b := ringPair(t, nil)
		want := c.both
		if c.recv != 0 {
			want = c.recv
		}
		_, d := a.frame(100)
		fill(a.nextSend(), nil, &d, 100)
		c.spoil(a.nextSend())
		s := a.postSend()
		w.settle()
		if st := s.LoadStatus(); st&datasheet.StatusErrorMask != c.both {
			t.Errorf("%s: sent %v", name, st)
		}
		_, d = b.frame(100)
		fill(b.nextRecv(), nil, &d, 100)
		c.spoil(b.nextRecv())
		r := b.postRecv()
		a.transmit(pattern(ringMessage, 1), nil, 0)
		w.settle()
		if st := r.LoadStatus(); st&datasheet.StatusErrorMask != want&datasheet.StatusErrorMask || st&datasheet.StatusOpMask != datasheet.StatusOpReceive ||
			r.Sent != 0 || r.Place != 0 || r.Length != 0 {
			t.Errorf("%s: received %v, %+v", name, st, r.Length)
		}
		got, _ := exchange(a, b, pattern(ringMessage, 2), nil, 0, -1)
		arrived(t, got, pattern(ringMessage, 2), 0, 0, 0, 0)
	}
}

// A reliable ring whose slot is bad breaks the connection, and both sides know why.
func TestRingBadSlotsBreak(t *testing.T) {
	w, a, b := ringPair(t, reliableBody)
	fill(b.nextRecv(), nil, nil, 0)
	b.nextRecv().Reserved = 1
	r := b.postRecv()
	s := a.transmit(pattern(ringMessage, 1), nil, 0)
	w.run("the end", func() bool { return s.LoadStatus().Done() && r.LoadStatus().Done() })
	if s.LoadStatus()&datasheet.StatusRemoteDescriptor == 0 || r.LoadStatus()&datasheet.StatusFormatError == 0 {
		t.Errorf("%v, %v", s.LoadStatus(), r.LoadStatus())
	}
	if n := len(a.n.events); n != 1 || a.n.events[0].Code != datasheet.EventConnectionLost {
		t.Errorf("%+v", a.n.events)
	}
}

// Memory of another tag is reached neither by slots nor by the table, nor is that of a ring by
// an endpoint of another tag.
func TestRingTagsOfOthers(t *testing.T) {
	w := newRingWorld(t)
	other := datasheet.Reply[datasheet.PtagBody](do(w.b, datasheet.OpCreatePtag, datasheet.PtagBody{})).Ptag
	theirs := w.b.memory(other, 0)
	a, b := w.a.newRing(w.a.memory(0, 0), nil), w.b.newRing(w.b.memory(0, 0), nil)
	connect(&vi{n: a.n, id: a.id}, &vi{n: b.n, id: b.id})
	frame, d := b.frame(1000)
	d.Handle = theirs
	fill(b.nextRecv(), nil, &d, 0)
	r := b.postRecv()
	a.transmit(pattern(ringMessage, 1), pattern(1000, 1), 0)
	w.settle()
	if r.LoadStatus()&datasheet.StatusProtectionError == 0 {
		t.Errorf("a frame of another tag: %v", r.LoadStatus())
	}
	b.table[5].Store(&datasheet.RingPlace{Address: d.Address, Handle: theirs, Length: d.Length, Tag: 5})
	r, _ = exchange(a, b, pattern(ringMessage, 2), pattern(1000, 2), 5, -1)
	arrived(t, r, pattern(ringMessage, 2), 0, 1000, 0, 5)
	refused(t, w.b, "SET_PAYLOAD", datasheet.OpSetPayload, datasheet.SetPayloadBody{Endpoint: b.id, Address: d.Address, Handle: theirs, Length: 10, Entry: 5, Tag: 5},
		datasheet.ResultInvalidParameter)
	zeroes(t, "memory of another tag", frame)
	// A ring of the other tag names the first one's slots.
	c, e := w.a.newRing(a.memory, nil), w.b.newRing(theirs, func(b *datasheet.CreateEndpointBody) { b.Ptag = other })
	connect(&vi{n: c.n, id: c.id}, &vi{n: e.n, id: e.id})
	before := slices.Clone(w.b.sram[b.at.Send:b.at.Table])
	into := datasheet.DataSegment{Address: uint64(b.at.Recv), Handle: b.handle, Length: 1000}
	fill(e.nextRecv(), nil, &into, 0)
	r = e.postRecv()
	c.transmit(pattern(ringMessage, 3), pattern(1000, 3), 0)
	w.settle()
	if r.LoadStatus()&datasheet.StatusProtectionError == 0 {
		t.Errorf("slots of another tag: %v", r.LoadStatus())
	}
	mustEqual(t, w.b.sram[b.at.Send:b.at.Table], before)
}

// Frames of a peer that are no ring's are dropped: nothing is taken for a message.
func TestRingShortMessages(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		for _, options := range [][]option{nil, {exactly(nil)}} {
			_, a, b := ringPair(t, change, options...)
			s, _ := b.receive(100)
			a.n.port.spoil = func(f []byte) [][]byte {
				if isData(f) {
					h := datasheet.HeaderAt(f)
					h.Extent, h.Length = 127, 127
				}
				return [][]byte{f}
			}
			a.transmit(pattern(ringMessage, 1), nil, 0)
			a.n.w.settle()
			if st := s.LoadStatus(); st.Done() && !st.Failed() {
				t.Errorf("%v: %v", level, st)
			}
			zeroes(t, "the slot", s.Message[:])
		}
	})
}

// A control program cannot choose entries of a ring's table: it has tags.
func TestRingIgnoresPrograms(t *testing.T) {
	_, a, b := ringPair(t, nil)
	b.place(3, 1000)
	p := b.n.use(&scripted{demux: func(_ []byte, number uint32) (uint32, uint32, bool) { return number, 3, true }}, engine.HookDemultiplex)
	s, _ := exchange(a, b, pattern(ringMessage, 1), pattern(1000, 1), 0, 1000)
	arrived(t, s, pattern(ringMessage, 1), 1000, 1000, 0, 0)
	if p.misled[engine.HookDemultiplex] != 1 {
		t.Errorf("misled %d times", p.misled[engine.HookDemultiplex])
	}
}
