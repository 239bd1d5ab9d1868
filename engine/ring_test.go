package engine_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// onAllWires runs f at all levels of reliability over all kinds of wires.
func onAllWires(t *testing.T, f func(t *testing.T, change func(*datasheet.CreateEndpointBody), options ...option)) {
	for name, wire := range map[string]func() []option{
		"plain":    func() []option { return nil },
		"exact":    func() []option { return []option{exactly(nil)} },
		"pieces":   func() []option { return []option{inParts(nil)} },
		"lending":  func() []option { return []option{lending(2560, new([2]*lender))} },
		"checksum": func() []option { return []option{lossy(1, 0, 0, 0, 0)} },
	} {
		t.Run(name, func(t *testing.T) {
			levels(t, func(t *testing.T, _ datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
				f(t, change, wire()...)
			})
		})
	}
}

// TestRingPageIsOneFrame: a message and its page cross a wire as one packet, as in the Trapeze papers, if they fit a frame. What
// does not fit goes behind the message, and is lent where the wire can.
func TestRingPageIsOneFrame(t *testing.T) {
	const page = 8192
	reliable := func(b *datasheet.CreateEndpointBody) { b.Reliability = datasheet.ReliableDelivery }
	for _, size := range []int{1, 4096, page, page + 1, 3 * page} {
		var ends [2]*lender
		w, a, b := ringPair(t, reliable, memory(4<<20), lending(datasheet.RingMessage+page, &ends))
		before := w.a.e.Counter(datasheet.CounterFramesSent)
		slot, frame := exchange(a, b, pattern(ringMessage, 1), pattern(size, 2), 0, size)
		arrived(t, slot, pattern(ringMessage, 1), uint32(size), uint32(size), 0, 0)
		mustEqual(t, frame, pattern(size, 2))
		n := w.a.e.Counter(datasheet.CounterFramesSent) - before
		if one := size <= page; one && (n != 1 || ends[0].lent != 0) || !one && (n < 2 || ends[0].lent == 0) {
			t.Errorf("a payload of %d bytes takes %d frames, %d of them lent", size, n, ends[0].lent)
		}
	}
}

func reliableBody(b *datasheet.CreateEndpointBody) { b.Reliability = datasheet.ReliableDelivery }

// zeroes checks that nobody has written to mem.
func zeroes(t testing.TB, what string, mem []byte) {
	t.Helper()
	if i := slices.IndexFunc(mem, func(c byte) bool { return c != 0 }); i >= 0 {
		t.Fatalf("%s: byte %d of %d was written", what, i, len(mem))
	}
}

// A control program cannot choose entries of a ring's table: it has tags.
func TestRingIgnoresPrograms(t *testing.T) {
	_, a, b := ringPair(t, nil)
	b.place(3, 1000)
	p := b.n.use(&scripted{demux: func(_ []byte, number uint32) (uint32, uint32, bool) { return number, 3, true }}, engine.HookDemultiplex)
	s, _ := exchange(a, b, pattern(ringMessage, 1), pattern(1000, 1), 0, 1000)
	arrived(t, s, pattern(ringMessage, 1), 1000, 1000, 0, 0)
	should.Be(t, p.misled[engine.HookDemultiplex], 1, "misled times")
}

// TestRingsUnreliablyAtLoss: an unreliable ring over such a wire gets some of the messages,
// whole, in order and at most once.
func TestRingsUnreliablyAtLoss(t *testing.T) {
	w, a, b := ringPair(t, nil, lossy(5, 0.2, 0.1, 0.1, 0.05))
	const total, size = 400, 2500
	last, came := -1, 0
	s, frame := b.receive(size)
	for n := range total {
		a.n.brk, b.n.brk = 0, size+64
		sent := a.transmit(pattern(ringMessage, uint64(n)), pattern(size, uint64(n)), 0)
		w.settle()
		must.Be(t, sent.LoadStatus(), datasheet.StatusDone)
		if !s.LoadStatus().Done() {
			continue
		}
		is := last + 1
		for is < n && string(s.Message[:]) != string(pattern(ringMessage, uint64(is))) {
			is++
		}
		arrived(t, s, pattern(ringMessage, uint64(is)), size, size, 0, 0)
		mustEqual(t, frame, pattern(size, uint64(is)))
		last = is
		came++
		b.n.brk = 0
		s, frame = b.receive(size)
	}
	if came < total/3 || came > total*9/10 {
		t.Errorf("%d of %d messages came", came, total)
	}
}

// A host that changes its slots and its table all the time, to anything, gets statuses, and
// neither side reaches memory that it was not given.
func TestRingHostsThatMeddle(t *testing.T) {
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 3))
		way := []option{inParts(nil), bursts(512)}
		if seed >= 40 {
			way = []option{exactly(nil), withSlots}
		}
		w, a, b := ringPair(t, func(b *datasheet.CreateEndpointBody) {
			if seed%2 == 0 {
				b.Reliability = datasheet.ReliableDelivery
			}
		}, append(way, smallMemory)...)
		a.byPath, b.byPath = seed >= 60, seed >= 60
		guard := map[*ring][]byte{}
		for _, x := range []*ring{a, b} {
			mem, _, _ := x.n.alloc(64 << 10)
			guard[x] = mem
			x.n.brk = 0
			_, at, _ := x.n.alloc(16 << 10)
			handle := datasheet.Reply[datasheet.RegionReply](do(x.n, datasheet.OpRegisterMemory,
				datasheet.RegisterMemoryBody{Address: at, Length: 16 << 10, IOVA: busBase})).Handle
			deregister(x.n, x.memory)
			x.memory = handle
		}
		for _, x := range []*ring{a, b} {
			for i := range guard[x][16<<10:] {
				guard[x][16<<10+i] = 0
			}
		}
		other := w.b.newRing(0, nil) // its memory is next to the ring's
		scramble := func(x *ring) {
			for _, s := range [][]datasheet.RingSlot{x.send, x.recv} {
				slot := &s[r.IntN(len(s))]
				switch r.IntN(8) {
				case 0:
					slot.Segments = uint16(r.IntN(3)) * uint16(1+r.IntN(20)/19*0x5555)
				case 1:
					slot.Control = datasheet.Control(r.IntN(2)) * datasheet.ControlImmediate
				case 2:
					slot.Tag, slot.Control = uint32(r.IntN(3)), datasheet.ControlImmediate
				case 3:
					slot.Length = []uint32{uint32(r.IntN(9000)), r.Uint32()}[r.IntN(2)]
				case 4:
					slot.Payload = datasheet.DataSegment{Address: hostBase + uint64(r.IntN(20<<10)), Handle: x.memory, Length: uint32(r.IntN(9000))}
					slot.Segments = 1
				case 5:
					slot.StoreStatus(datasheet.Status(r.Uint32()))
				case 6:
					slot.Payload.Address, slot.Payload.Handle = uint64(x.at.Send)+uint64(r.IntN(1<<15)), x.handle
				case 7:
					slot.Reserved = uint32(r.IntN(20) / 19)
				}
			}
			x.table[r.IntN(3)] = datasheet.RingPlace{Address: hostBase + uint64(r.IntN(20<<10)), Handle: x.memory * uint32(r.IntN(2)), Length: uint32(r.IntN(9000)), Tag: uint32(r.IntN(3))}
		}
		for range 400 {
			for _, x := range []*ring{a, b} {
				scramble(x)
				switch r.IntN(4) {
				case 0:
					x.postSend()
				case 1:
					x.postRecv()
				}
				if x.byPath {
					x.way().Poll(r.IntN(2) == 0, 1)
				} else {
					x.n.e.Step()
				}
			}
		}
		w.settle()
		for _, x := range []*ring{a, b} {
			zeroes(t, "memory beyond the region", guard[x][16<<10:])
		}
		zeroes(t, "the ring beside", w.b.sram[other.at.Send:other.at.Table])
		for _, x := range []*ring{a, b} {
			x.destroy()
		}
		x, y := w.a.newRing(w.a.memory(0, 0), nil), w.b.newRing(w.b.memory(0, 0), nil)
		connect(&vi{n: x.n, id: x.id}, &vi{n: y.n, id: y.id})
		s, _ := exchange(x, y, pattern(ringMessage, 1), nil, 0, -1)
		arrived(t, s, pattern(ringMessage, 1), 0, 0, 0, 0)
	}
}
