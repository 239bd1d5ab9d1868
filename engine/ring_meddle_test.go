package engine_test

import (
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

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
					slot.Segments = uint16(r.IntN(3))
				case 1:
					slot.Control = datasheet.Control(r.IntN(2)) * datasheet.ControlImmediate
				case 2:
					slot.Tag, slot.Control = uint32(r.IntN(3)), datasheet.ControlImmediate
				case 3:
					slot.Length = uint32(r.IntN(9000))
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
