package engine_test

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// forger makes frames of a connection's peer that refer to what they like.
type forger struct {
	w    *world
	v, p *vi
	b    *lender
	last datasheet.Header // of a frame of the connection, which shows its numbers
	r    *descriptors.Descriptor
	in   []byte
	data []byte // of the peer's memory, at offset at
	at   uint64
}

const forgedSize = 4000

func newForger(t testing.TB, change func(*datasheet.CreateEndpointBody), options ...option) *forger {
	t.Helper()
	f := &forger{}
	f.w, f.v, f.p, _, f.b = lentPair(t, 8192, change, options...)
	var in [][]byte
	f.r, in = f.p.descriptor(forgedSize)
	f.in = in[0]
	var address uint64
	f.data, address, _ = f.v.n.alloc(forgedSize)
	f.at = address - hostBase
	copy(f.data, pattern(forgedSize, 5))
	f.p.postRecv(f.r)
	f.w.settle()
	f.w.a.port.spoil = func(b []byte) [][]byte { f.last = *datasheet.HeaderAt(b); return nil }
	d, _ := f.v.descriptor(1)
	f.v.postSend(d)
	f.w.settle()
	return f
}

// good is a sound header of a frame that refers to all of a message.
func (f *forger) good() datasheet.Header {
	return datasheet.Header{Destination: f.w.b.e.MAC, Source: f.w.a.e.MAC, EtherType: datasheet.EtherType,
		Version: datasheet.WireVersion, Type: datasheet.FrameData,
		Flags:  datasheet.FrameFirst | datasheet.FrameLast | datasheet.FrameReference,
		Length: forgedSize, DestinationEndpoint: f.p.id, SourceEndpoint: f.v.id, Key: f.last.Key,
		PSN: f.last.PSN, Ack: f.last.Ack, Credit: f.last.Credit, Extent: forgedSize}
}

// table refers to all of data.
func (f *forger) table() []byte { return tableOf(ref(firstRegion, forgedSize, f.at)) }

// arrive has a frame arrive at the second NIC.
func (f *forger) arrive(h datasheet.Header, table []byte) {
	b := alignedBytes(datasheet.HeaderSize + len(table))
	*datasheet.HeaderAt(b) = h
	copy(b[datasheet.HeaderSize:], table)
	*f.w.b.port.in = append(*f.w.b.port.in, b)
	for range 4 {
		f.w.b.e.Step()
	}
}

func tableOf(references ...datasheet.Reference) []byte {
	b := alignedBytes(len(references) * datasheet.ReferenceSize)
	copy(datasheet.ReferencesAt(b), references)
	return b
}

func ref(region, length uint32, offset uint64) datasheet.Reference {
	return datasheet.Reference{Region: region, Length: length, Offset: offset}
}

// TestForgedReferences: what cannot be is dropped and counted, and changes
// nothing.
func TestForgedReferences(t *testing.T) {
	header := func(change func(h *datasheet.Header)) func(h *datasheet.Header, table *[]byte) {
		return func(h *datasheet.Header, _ *[]byte) { change(h) }
	}
	table := func(references ...datasheet.Reference) func(h *datasheet.Header, table *[]byte) {
		return func(_ *datasheet.Header, t *[]byte) { *t = tableOf(references...) }
	}
	for _, tt := range []struct {
		name  string
		forge func(h *datasheet.Header, table *[]byte)
	}{
		{"no table", func(_ *datasheet.Header, t *[]byte) { *t = nil }},
		{"part of a reference", func(_ *datasheet.Header, t *[]byte) { *t = (*t)[:8] }},
		{"one and a part", func(_ *datasheet.Header, t *[]byte) { *t = append(*t, 0, 0, 0, 0) }},
		{"nine", table(slices.Repeat([]datasheet.Reference{ref(firstRegion, forgedSize/9, 0)}, 9)...)},
		{"empty reference", table(ref(firstRegion, forgedSize, 0), ref(firstRegion, 0, 0))},
		{"too little", table(ref(firstRegion, forgedSize-1, 0))},
		{"too much", table(ref(firstRegion, forgedSize+1, 0))},
		{"sum that wraps", table(ref(firstRegion, math.MaxUint32, 0), ref(firstRegion, forgedSize+1, 0))},
		{"region 0", table(ref(0, forgedSize, 0))},
		{"no such region", table(ref(firstRegion+7, forgedSize, 0))},
		{"second of two is not there", table(ref(firstRegion, 1000, 0), ref(5, forgedSize-1000, 0))},
		{"end outside the region", table(ref(firstRegion, forgedSize, memSize-forgedSize+1))},
		{"start outside the region", table(ref(firstRegion, forgedSize, memSize+1))},
		{"offset and length wrap", table(ref(firstRegion, forgedSize, math.MaxUint64-100))},
		{"length 0", func(h *datasheet.Header, t *[]byte) { h.Length, h.Extent, *t = 0, 0, nil }},
		{"length of the table", header(func(h *datasheet.Header) { h.Length = datasheet.ReferenceSize })},
		{"an ack", header(func(h *datasheet.Header) { h.Type = datasheet.FrameAck })},
		{"a disconnect", header(func(h *datasheet.Header) { h.Type = datasheet.FrameDisconnect })},
		{"a connect request", header(func(h *datasheet.Header) { h.Type = datasheet.FrameConnectRequest })},
		{"reserved flag", header(func(h *datasheet.Header) { h.Flags |= 0x80 })},
		{"another version", header(func(h *datasheet.Header) { h.Version++ })},
		{"another station", header(func(h *datasheet.Header) { h.Destination[5]++ })},
		{"wrong checksum", header(func(h *datasheet.Header) { h.Flags |= datasheet.FrameChecksum; h.Checksum = 1 })},
		{"another key", header(func(h *datasheet.Header) { h.Key++ })},
		{"place outside the message", header(func(h *datasheet.Header) { h.Offset = 1 })},
		{"beyond the credit", header(func(h *datasheet.Header) { h.Message = 1 })},
		{"message over the limit", header(func(h *datasheet.Header) { h.Extent = datasheet.MaxTransfer + 1 })},
	} {
		for wire, o := range map[string]option{"whole frames": func(*engine.Config, *port) {}, "in parts": inParts(func(p *parts) {
			p.pace = func(have, _ int) int { return have + 17 }
		})} {
			t.Run(tt.name+", "+wire, func(t *testing.T) {
				f := newForger(t, nil, o)
				h, refs := f.good(), f.table()
				tt.forge(&h, &refs)
				before := f.w.b.e.Counter(datasheet.CounterFramesDropped)
				f.arrive(h, refs)
				for range 40 { // it may come bit by bit
					f.w.b.e.Step()
				}
				should.Be(t, f.w.b.e.Counter(datasheet.CounterFramesDropped)-before, 1, "frames dropped")
				if f.r.Status().Done() || !bytes.Equal(f.in, make([]byte, forgedSize)) {
					t.Errorf("receive: %v", f.r.Status())
				}
				should.Be(t, f.p.state(), datasheet.StateConnected, "the VI")
				// What is right is taken.
				f.arrive(f.good(), f.table())
				f.w.settle()
				if !f.r.Status().Done() || f.r.Status().Failed() {
					t.Fatalf("a good frame: %v", f.r.Status())
				}
				mustEqual(t, f.in, f.data)
			})
		}
	}
}

// TestOverlappingReferences: a message may have the same bytes twice.
func TestOverlappingReferences(t *testing.T) {
	f := newForger(t, nil)
	f.arrive(f.good(), tableOf(ref(firstRegion, 3000, f.at), ref(firstRegion, 1000, f.at+1500)))
	f.w.settle()
	mustEqual(t, f.in, append(bytes.Clone(f.data[:3000]), f.data[1500:2500]...))
}

// TestReferencesToTheWrong: NICs on other wires, and unreliable VIs, take none.
func TestReferencesToTheWrong(t *testing.T) {
	t.Run("unreliable", func(t *testing.T) {
		f := newForger(t, unreliable)
		f.arrive(f.good(), f.table())
		if f.w.b.e.Counter(datasheet.CounterFramesDropped) != 1 || f.r.Status().Done() || f.b.got != 0 {
			t.Errorf("%v, %d borrowed", f.r.Status(), f.b.got)
		}
	})
	t.Run("wire", func(t *testing.T) {
		w, v, p := pair(t, nil)
		f := &forger{w: w, v: v, p: p}
		f.arrive(f.good(), tableOf(ref(firstRegion, forgedSize, 64)))
		should.Be(t, w.b.e.Counter(datasheet.CounterFramesDropped), 1, "frames dropped")
	})
}

// TestReferencesChange: the table and the bytes belong to the peer, which may
// write them while they are read.
func TestReferencesChange(t *testing.T) {
	f := newForger(t, nil)
	var frame []byte
	f.b.reading = func() {
		f.b.reading = nil
		frame = (*f.w.b.port.in)[0]
		copy(frame[datasheet.HeaderSize:], tableOf(ref(firstRegion, math.MaxUint32, math.MaxUint64/2), ref(9, 1, 1)))
		h := datasheet.HeaderAt(frame)
		h.Length, h.Extent, h.Offset, h.Type = 0xffff, 0xffffffff, 0xffffffff, datasheet.FrameDisconnect
	}
	f.arrive(f.good(), tableOf(ref(firstRegion, 3000, f.at), ref(firstRegion, 1000, f.at+3000)))
	f.w.settle()
	if frame == nil || f.r.Status().Failed() {
		t.Errorf("receive: %v", f.r.Status())
	}
	mustEqual(t, f.in, f.data)
}

// FuzzReferenceFrames throws frames that refer to what the fuzzer likes at a
// connected NIC. Nothing lands but what their references name.
func FuzzReferenceFrames(f *testing.F) {
	f.Add(uint8(0), uint16(forgedSize), uint32(forgedSize), uint32(0), []byte(tableOf(ref(firstRegion, forgedSize, 64))))
	f.Add(uint8(1), uint16(100), uint32(forgedSize), uint32(200), []byte(tableOf(ref(firstRegion, 60, 0), ref(firstRegion, 40, 5))))
	f.Add(uint8(2), uint16(8), uint32(8), uint32(0), []byte(tableOf(ref(firstRegion+1, 8, 0))))
	f.Add(uint8(4), uint16(forgedSize), uint32(forgedSize), uint32(0), []byte(tableOf(ref(firstRegion, math.MaxUint32, 0), ref(firstRegion, forgedSize+1, 0))))
	f.Fuzz(func(t *testing.T, kind uint8, length uint16, extent, offset uint32, table []byte) {
		g := newForger(t, nil, smallMemory, inParts(func(p *parts) {
			if kind&1 != 0 {
				p.pace = func(have, size int) int { return have + 1 + int(length%97) }
			}
		}))
		guard, _, _ := g.p.n.alloc(64)
		before := bytes.Clone(g.w.a.mem)
		if kind&2 != 0 {
			g.w.b.newLog(4) // frames are made whole
		}
		if kind&4 != 0 {
			g.w.b.use(&scripted{filter: func(_ engine.Direction, frame []byte, _ uint32) (engine.Action, uint32, bool) {
				if h := datasheet.HeaderAt(frame); len(frame) != datasheet.HeaderSize+int(h.Length) || h.Flags&datasheet.FrameReference != 0 {
					t.Fatalf("a filter is shown %d bytes", len(frame))
				}
				return engine.FramePass, 0, true
			}}, engine.HookFilterReceive)
		}
		h := g.good()
		h.Length, h.Extent, h.Offset = length, extent, offset
		if len(table) > 1000 {
			table = table[:1000]
		}
		g.arrive(h, table)
		g.w.settle()
		var want []byte
		for _, r := range datasheet.ReferencesAt(append(alignedBytes(0), table...)) {
			if end := r.Offset + uint64(r.Length); end >= r.Offset && end <= uint64(len(g.w.a.mem)) && len(want) < 1<<17 {
				want = append(want, before[r.Offset:end]...)
			}
		}
		if r := g.r.Status(); r.Done() && !r.Failed() && !bytes.Equal(g.in[:g.r.Length()], want[:min(len(want), int(g.r.Length()))]) {
			t.Fatal("other bytes have landed")
		}
		must.Same(t, guard, make([]byte, 64), "bytes behind the buffer were written")
		g.w.a.port.spoil = nil
		g.w.mustServe(5)
	})
}
