package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// FuzzRing has hosts write whatever the fuzzer likes where slots and entries of the payload
// table say what the device is to do: behind the message of a send and of a receive, and into
// all of an entry, which is the one that the tag of the send names. A second message follows,
// with another version of the entry. Slots must end, nothing is written that was not named, and
// another ring works.
func FuzzRing(f *testing.F) {
	slot := func(change func(s *datasheet.RingSlot)) []byte {
		b := alignedBytes(datasheet.RingSlotSize)
		change(&datasheet.RingSlotsAt(b)[0])
		return b[ringMessage:]
	}
	entry := func(p datasheet.RingPlace) []byte {
		b := alignedBytes(datasheet.RingPlaceSize)
		datasheet.RingPlacesAt(b)[0] = p
		return b
	}
	const named = hostBase + fuzzRoom
	payload := datasheet.DataSegment{Address: named, Handle: 1 << 20, Length: 3000}
	good := slot(func(s *datasheet.RingSlot) { s.Segments, s.Payload, s.Length = 1, payload, 3000 })
	tagged := slot(func(s *datasheet.RingSlot) {
		s.Segments, s.Payload, s.Length, s.Control, s.Tag = 1, payload, 3000, datasheet.ControlImmediate, 0x105
	})
	empty := slot(func(*datasheet.RingSlot) {})
	f.Add(good, good, entry(datasheet.RingPlace{}), uint8(0))
	f.Add(tagged, empty, entry(datasheet.RingPlace{Address: named, Handle: 1 << 20, Length: 3000, Tag: 0x105}), uint8(1))
	f.Add(tagged, good, entry(datasheet.RingPlace{Address: named, Handle: 1 << 20, Length: 2999, Tag: 0x105}), uint8(2))
	f.Add(tagged, good, entry(datasheet.RingPlace{Address: named - 1, Handle: 1 << 20, Length: 3000, Tag: 5}), uint8(3))
	f.Add(slot(func(s *datasheet.RingSlot) { s.Segments, s.Payload, s.Length = 1, payload, 0xffffffff }), empty, entry(datasheet.RingPlace{}), uint8(0))
	f.Add(empty, slot(func(s *datasheet.RingSlot) { s.Segments, s.Reserved, s.Control = 3, 1, 0xffff }), entry(datasheet.RingPlace{}), uint8(7))
	f.Fuzz(func(t *testing.T, send, recv, place []byte, choice uint8) {
		options := []option{smallMemory}
		if choice&4 != 0 {
			options = append(options, exactly(nil))
		}
		w := newRingWorld(t, options...)
		var ends [2]*ring
		for i, n := range []*node{w.a, w.b} {
			// Half of the host's memory is registered.
			memory := datasheet.Reply[datasheet.RegionReply](do(n, datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{
				Address: hostBase + fuzzRoom, Length: fuzzRoom, IOVA: busBase + fuzzRoom})).Handle
			ends[i] = n.newRing(memory, func(b *datasheet.CreateEndpointBody) {
				if choice&1 != 0 {
					b.Reliability = datasheet.ReliableDelivery
				}
			})
		}
		a, b := ends[0], ends[1]
		connect(&vi{n: a.n, id: a.id}, &vi{n: b.n, id: b.id})
		other := w.b.newRing(b.memory, nil)
		put := func(r *ring, queue uint32, image []byte) {
			at := r.n.sram[queue+ringMessage:][:datasheet.RingSlotSize-ringMessage]
			copy(at, image)
			datasheet.RingSlotsAt(r.n.sram[queue:])[0].StoreStatus(0)
		}
		put(a, a.at.Send, send)
		put(b, b.at.Recv, recv)
		entry := a.send[0].Tag % datasheet.PayloadEntries
		table := b.n.sram[b.at.Table+entry*datasheet.RingPlaceSize:][:datasheet.RingPlaceSize]
		copy(table, place)
		b.postRecv()
		a.postSend()
		w.settle()
		if choice&2 != 0 && len(place) > 0 {
			table[place[0]%datasheet.RingPlaceSize] ^= place[len(place)-1]
		}
		put(a, a.at.Send+datasheet.RingSlotSize, send)
		put(b, b.at.Recv+datasheet.RingSlotSize, recv)
		b.postRecv()
		a.postSend()
		w.settle()
		for i := range 2 {
			s, r := &a.send[i], &b.recv[i]
			if !s.LoadStatus().Done() {
				t.Fatalf("send %d is stuck", i)
			}
			if r.LoadStatus().Done() && (r.Length != 0 && r.Length != r.Sent || r.Sent > maxPayload || r.Place > datasheet.PayloadEntries) {
				t.Fatalf("receive %d: %v, %d of %d at %d", i, r.LoadStatus(), r.Length, r.Sent, r.Place)
			}
		}
		zeroes(t, "memory that is not registered", w.b.mem[:fuzzRoom])
		zeroes(t, "the slots of another ring", w.b.sram[other.at.Send:other.at.Table])
		x := w.a.newRing(a.memory, nil)
		connect(&vi{n: x.n, id: x.id}, &vi{n: other.n, id: other.id})
		s, _ := exchange(x, other, pattern(ringMessage, 1), nil, 0, -1)
		arrived(t, s, pattern(ringMessage, 1), 0, 0, 0, 0)
		for _, r := range []*ring{a, b, x, other} {
			r.destroy()
		}
		if w.a.e.FreeSRAM() != sramSize-sramFrom || w.b.e.FreeSRAM() != sramSize-sramFrom {
			t.Fatal("device memory has been lost")
		}
	})
}

// fuzzRoom is how much of the host's memory is not registered, and how much behind it is.
const fuzzRoom = 128 << 10
