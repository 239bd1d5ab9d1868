package engine_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// slotted is an end of a wire that loses nothing and carries short frames.
type slotted struct {
	*exact
	seen  func(f shortFrame, payload []byte) // each that is sent
	short int                                // frames that were sent short
	lent  int                                // of them, of references
	whole bool                               // there is no room for short ones
}

type shortFrame struct {
	header uint64
	beside datasheet.ShortBeside
}

// packed is the header of a short frame, of bits 15:0 of each.
func packed(endpoint, psn, ack, credit uint32) uint64 {
	return uint64(uint16(endpoint)) | uint64(uint16(psn))<<16 | uint64(uint16(ack))<<32 | uint64(credit)<<48
}

// numbered is a header whose PSN is so many more.
func numbered(header uint64, more uint16) uint64 {
	return header&^(0xffff<<16) | uint64(uint16(header>>16)+more)<<16
}

// withSlots is an option behind exactly.
func withSlots(c *engine.Config, _ *port) {
	e := c.Port.(*exact)
	if e.wire.shorts == nil {
		e.wire.shorts = map[*byte]shortFrame{}
	}
	s := &slotted{exact: e}
	c.Host.(*node).slots = s
	c.Port = s
}

// lendsToo is an option behind lending, exactly and withSlots.
func lendsToo(c *engine.Config, _ *port) {
	c.Port = struct {
		*slotted
		*lender
	}{c.Port.(*slotted), c.Host.(*node).lender}
}

func (s *slotted) Put(h uint64, b datasheet.ShortBeside, payload []byte, last bool) (uint32, bool) {
	if s.whole || s.Reserve(len(payload)) == nil {
		return 0, false
	}
	copy(s.space, payload)
	f := shortFrame{h, b}
	s.wire.shorts[&s.space[0]] = f
	if s.short++; b&datasheet.ShortLent != 0 {
		s.lent++
	}
	if s.seen != nil {
		s.seen(f, s.space)
	}
	*s.out = append(*s.out, s.space)
	s.wire.sent[s.out]++
	s.space = nil
	if last {
		s.Flush()
	}
	return s.Mark(), true
}

func (s *slotted) PutPair(h uint64, b datasheet.ShortBeside, first, second []byte, last bool) (uint32, bool) {
	return s.Put(h, b, slices.Concat(first, second), last)
}

func (s *slotted) Next() ([]byte, uint64, datasheet.ShortBeside, engine.Found) {
	f := s.exact.Receive()
	if len(f) == 0 {
		return nil, 0, 0, engine.FoundOther
	}
	short, ok := s.wire.shorts[&f[0]]
	if !ok {
		return nil, 0, 0, engine.FoundOther
	}
	return f, short.header, short.beside, engine.FoundShort
}

func (s *slotted) Pass(bool) {
	delete(s.wire.shorts, &(*s.in)[0][0])
	s.exact.Release()
}

// arrive has a short frame arrive.
func (s *slotted) arrive(f shortFrame, payload []byte) {
	frame := alignedBytes(len(payload))
	copy(frame, payload)
	s.wire.shorts[&frame[0]] = f
	*s.in = append(*s.in, frame)
}

// slotsPair is pair over such a wire, with doorbells that are calls.
func slotsPair(t testing.TB, change func(*datasheet.CreateEndpointBody), options ...option) (w *world, v, p *vi, ends *[2]*exact) {
	t.Helper()
	ends = new([2]*exact)
	w, v, p = pair(t, change, append(options, exactly(ends), withSlots)...)
	w.a.calls, w.b.calls = true, true
	return w, v, p, ends
}

// renew makes a descriptor of n bytes that is done one that may be posted again.
func renew(d *descriptors.Descriptor, n uint32) {
	d.Control().Length = n
	d.Control().StoreStatus(0)
}

// TestShortMessages: messages of one frame go as short frames, in both directions,
// and arrive as they were.
func TestShortMessages(t *testing.T) {
	w, v, p, _ := slotsPair(t, nil)
	for i, n := range []int{1, 64, 112, 113, 1000, 1984} {
		mustArrive(t, v, p, n, uint64(i))
		mustArrive(t, p, v, n, uint64(i))
	}
	if w.a.slots.short != 6 || w.b.slots.short != 6 {
		t.Errorf("%d and %d short frames, want 6", w.a.slots.short, w.b.slots.short)
	}
	mustArrive(t, v, p, 1985, 7) // in two frames
	for i, n := range []int{10, 0} {
		s, _ := v.descriptor(n)
		s.SetImmediate(7)
		r, _ := p.descriptor(10)
		p.postRecv(r)
		v.postSend(s)
		w.run("the message", func() bool { return s.Status().Done() && r.Status().Done() })
		data, ok := r.Immediate()
		if want := 7; w.a.slots.short != want || !ok || data != 7 {
			t.Errorf("message %d: immediate %d, %v; %d short frames, want %d", i, data, ok, w.a.slots.short, want)
		}
	}
}

// TestShortBehindCredit: messages that have waited for credit go as short frames, also if memory was taken
// away meanwhile.
func TestShortBehindCredit(t *testing.T) {
	for _, again := range []bool{false, true} {
		w, v, p, _ := slotsPair(t, nil)
		var sends []*descriptors.Descriptor
		for i := range 4 {
			s, buf := v.descriptor(64)
			copy(buf[0], pattern(64, uint64(i)))
			sends = append(sends, s)
		}
		v.postSend(sends...)
		w.settle()
		must.Be(t, w.a.slots.short, 0, "frames without credit")
		if again {
			other := w.a.memory(0, 0)
			do(w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: other})
		}
		for i := range 4 {
			r, buf := p.descriptor(64)
			p.postRecv(r)
			w.run("the message", func() bool { return r.Status().Done() && sends[i].Status().Done() })
			if !bytes.Equal(buf[0], pattern(64, uint64(i))) || r.Status().Failed() {
				t.Errorf("message %d: %v, %v", i, r.Status(), buf[0][:8])
			}
		}
		should.Be(t, w.a.slots.short, 4, "registered anew %v: short frames", again)
	}
}

// TestShortNumbers: an end whose Ack or Credit has got ahead by 2^16 since its last frame sends a whole one. Up
// to there a short one says which it is.
func TestShortNumbers(t *testing.T) {
	w, v, p, _ := slotsPair(t, nil, smallMemory)
	mustArrive(t, v, p, 8, 1)
	mustArrive(t, p, v, 8, 1)
	var sends, receives []*descriptors.Descriptor
	for range 4 {
		s, _ := v.descriptor(8)
		r, _ := p.descriptor(8)
		sends, receives = append(sends, s), append(receives, r)
	}
	back, _ := p.descriptor(8)
	into, _ := v.descriptor(8)
	for _, tt := range []struct {
		messages int
		short    bool
	}{{1<<16 - 1, true}, {1 << 16, false}, {5, true}, {1<<16 - 1, true}} {
		before := w.b.slots.short
		frames := w.b.e.Counter(datasheet.CounterFramesSent)
		for i := range tt.messages {
			s, r := sends[i%4], receives[i%4]
			renew(s, 8)
			renew(r, 8)
			p.postRecv(r)
			v.postSend(s)
			for n := 0; !s.Status().Done() || !r.Status().Done(); n++ {
				if w.b.e.Step(); n > 100 {
					t.Fatalf("message %d of %d: %v, %v", i, tt.messages, s.Status(), r.Status())
				}
				w.a.e.Step()
			}
			if s.Status().Failed() || r.Status().Failed() {
				t.Fatalf("message %d of %d: %v, %v", i, tt.messages, s.Status(), r.Status())
			}
		}
		must.Be(t, w.b.e.Counter(datasheet.CounterFramesSent)-frames, 0, "the receiver has sent frames")
		renew(into, 8)
		renew(back, 8)
		v.postRecv(into)
		p.postSend(back)
		w.run("the answer", func() bool { return back.Status().Done() && into.Status().Done() })
		if back.Status().Failed() || into.Status().Failed() {
			t.Fatalf("%d messages: %v, %v", tt.messages, back.Status(), into.Status())
		}
		should.Be(t, w.b.slots.short != before, tt.short, "%d messages: a short frame", tt.messages)
	}
}

// TestLentShort: a message that is lent is a reference in its slot. One that is taken back meanwhile, or whose
// reference cannot be, ends the connection.
func TestLentShort(t *testing.T) {
	lent := func(t *testing.T) (w *world, v, p *vi) {
		var ends [2]*lender
		w, v, p = pair(t, nil, lending(8192, &ends), exactly(nil), withSlots, lendsToo)
		w.a.calls, w.b.calls = true, true
		return w, v, p
	}
	t.Run("good", func(t *testing.T) {
		w, v, p := lent(t)
		for i, n := range []int{2047, 2048, 4096, 8192} {
			mustArrive(t, v, p, n, uint64(i))
		}
		if w.a.slots.lent != 3 || w.a.slots.short != 4 || w.b.lender.got != 3 {
			t.Errorf("%d short frames, %d of them lent, %d borrowed", w.a.slots.short, w.a.slots.lent, w.b.lender.got)
		}
	})
	t.Run("revoked", func(t *testing.T) {
		w, v, p := lent(t)
		w.b.lender.reading = func() { w.a.lender.Revoke(0) }
		if sent, received, _ := message(v, p, make([]byte, 4096)); !sent.Failed() || !received.Failed() {
			t.Errorf("%v, %v", sent, received)
		}
	})
	for name, table := range map[string][]datasheet.Reference{
		"region 0":   {{Region: 0, Length: 100}},
		"no length":  {{Region: firstRegion}},
		"too far":    {{Region: firstRegion, Length: 100, Offset: 1 << 40}},
		"wraps":      {{Region: firstRegion, Length: 100, Offset: 1<<64 - 50}},
		"too long":   {{Region: firstRegion, Length: 1<<32 - 1}},
		"too much":   {{Region: firstRegion, Length: 60000}, {Region: firstRegion, Length: 60000}},
		"of nothing": {{Region: firstRegion, Length: 100}, {}},
	} {
		t.Run(name, func(t *testing.T) {
			w, v, p := lent(t)
			mustArrive(t, v, p, 100, 1)
			var last shortFrame
			w.a.slots.seen = func(f shortFrame, _ []byte) { last = f }
			mustArrive(t, v, p, 4096, 1)
			r, _ := p.descriptor(4096)
			p.postRecv(r)
			last.header = numbered(last.header, 1)
			last.beside |= datasheet.ShortLent
			bytes := alignedBytes(len(table) * datasheet.ReferenceSize)
			copy(datasheet.ReferencesAt(bytes), table)
			w.b.slots.arrive(last, bytes)
			w.run("the end", func() bool { return p.state() == datasheet.StateError })
			should.Be(t, r.Status()&datasheet.StatusFlushed, datasheet.StatusFlushed, "%v", r.Status())
		})
	}
}

// TestShortToNobody: a short frame for a connection that is no more is answered. So its sender does not
// take it for delivered, whatever is remembered of it.
func TestShortToNobody(t *testing.T) {
	for name, end := range map[string]func(w *world, p *vi){
		"reset": func(w *world, _ *vi) { w.b.e.Reset() },
		"destroyed": func(w *world, p *vi) {
			w.b.port.room = -1
			start(w.b, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: p.id})
			start(w.b, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: p.id})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, v, p, _ := slotsPair(t, nil)
			mustArrive(t, v, p, 1, 0)
			r, _ := p.descriptor(100)
			p.postRecv(r)
			w.settle()
			end(w, p)
			s, _ := v.descriptor(100)
			v.postSend(s)
			must.Be(t, w.a.slots.short, 2, "short frames")
			for range 200 {
				w.a.e.Step()
				w.b.e.Step()
			}
			w.b.port.room = 0
			w.run("the end of the send", func() bool { return s.Status().Done() })
			if !s.Status().Failed() || v.state() != datasheet.StateError {
				t.Errorf("%v, %v", s.Status(), v.state())
			}
		})
	}
}

// TestScribbledShorts: whatever short frames a peer sends, the NIC goes on, and its host's memory
// is written where receives are only.
func TestScribbledShorts(t *testing.T) {
	rounds := 20_000
	if soak.Wanted() {
		rounds = 1_000_000
	}
	rnd := rand.New(rand.NewPCG(31, 3))
	for done := 0; done < rounds; {
		w, v, p, _ := slotsPair(t, nil, smallMemory)
		mustArrive(t, v, p, 10, 1)
		var last shortFrame
		w.a.slots.seen = func(f shortFrame, _ []byte) { last = f }
		mustArrive(t, v, p, 10, 1)
		r, in := p.descriptor(64)
		guard := w.b.mem[len(w.b.mem)-4096:]
		for ; done < rounds && p.state() == datasheet.StateConnected; done++ {
			last.header = numbered(last.header, 1)
			f := last
			h := &f.header
			switch rnd.IntN(200) {
			case 0:
				*h = numbered(*h, uint16(rnd.Uint32()))
			case 1:
				*h = *h&^(0xffff<<32) | uint64(uint16(rnd.Uint32()))<<32
			case 2:
				*h = *h<<16>>16 | uint64(rnd.Uint32())<<48
			case 3, 4, 5, 6:
				*h = *h&^0xffff | uint64(uint16(rnd.Uint32()))
				last.header = numbered(last.header, ^uint16(0))
			case 7, 8, 9, 10:
				f.beside = datasheet.ShortBeside(uint16(rnd.Uint32()))
				last.header = numbered(last.header, ^uint16(0))
			}
			renew(r, 64)
			if rnd.IntN(300) != 0 {
				p.postRecv(r)
			}
			n := 1 + rnd.IntN(64)
			if rnd.IntN(300) == 0 {
				n += 100
			}
			if rnd.IntN(300) == 0 {
				f.beside |= datasheet.ShortLent
			}
			if rnd.IntN(4) == 0 {
				f.beside = f.beside.WithImmediate(rnd.Uint32())
			}
			w.b.slots.arrive(f, pattern(n, uint64(done)))
			for range 3 {
				w.b.e.Step()
			}
			if r.Status().Done() && !r.Status().Failed() {
				mustEqual(t, in[0][:r.Length()], pattern(int(r.Length()), uint64(done)))
			}
			*w.a.port.in = (*w.a.port.in)[:0]
			if done%64 == 0 {
				w.now += time.Microsecond
			}
		}
		for i, c := range guard {
			must.Be(t, c, 0, "byte %d of memory that was not posted", i)
		}
	}
}
