package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// placeUnderWay has a message with a tag and a payload of three frames come as far as its first
// frame, and then calls change; the rest follows.
func placeUnderWay(t *testing.T, level func(*datasheet.CreateEndpointBody), change func(b *ring)) (s *datasheet.RingSlot, b *ring, place []byte) {
	t.Helper()
	w, a, b := ringPair(t, level)
	place = b.place(0x305, 6000)
	s, own := b.receive(6000)
	began := false
	a.n.port.spoil = func(f []byte) [][]byte {
		if !began && isData(f) {
			began = true
			*b.n.port.in = append(*b.n.port.in, f)
			for range 3 {
				b.n.e.Step()
			}
			change(b)
			return nil
		}
		return [][]byte{f}
	}
	sent := a.transmit(pattern(ringMessage, 1), pattern(5000, 1), 0x305)
	w.run("the end", func() bool { return sent.LoadStatus().Done() && s.LoadStatus().Done() })
	must.Be(t, sent.LoadStatus(), datasheet.StatusDone)
	zeroes(t, "the slot's frame", own)
	return s, b, place
}

// TestRingPlaceUnderWay: a message under way keeps the place that it began with, whatever is stored to its entry. Once
// SET_PAYLOAD is answered, nothing lands any more where the entry said before, and memory that is deregistered costs the
// payload, not the connection.
func TestRingPlaceUnderWay(t *testing.T) {
	for name, c := range map[string]struct {
		change        func(b *ring) (new []byte)
		length, place uint32 // of the message that has come
	}{
		"changed": {func(b *ring) []byte { return b.place(0x305, 6000) }, 5000, 6},
		"withdrawn": {func(b *ring) []byte {
			start(b.n, datasheet.OpSetPayload, datasheet.SetPayloadBody{Endpoint: b.id, Entry: 5})
			return nil
		}, 0, 0},
		"deregistered": {func(b *ring) []byte {
			start(b.n, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: b.memory})
			return nil
		}, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			levels(t, func(t *testing.T, _ datasheet.Reliability, level func(*datasheet.CreateEndpointBody)) {
				var other []byte
				s, b, place := placeUnderWay(t, level, func(b *ring) { other = c.change(b) })
				arrived(t, s, pattern(ringMessage, 1), c.length, 5000, c.place, 0x305)
				should.Be(t, len(b.n.events), 0, "%+v", b.n.events)
				zeroes(t, "the new place", other)
				if c.length > 0 {
					mustEqual(t, place[:5000], pattern(5000, 1))
					return
				}
				zeroes(t, "the place behind the first frame", place[2048:])
				should.Be(t, b.n.e.Counter(datasheet.CounterPayloadsDiscarded), 1, "payloads discarded")
				should.Be(t, b.table[5] == datasheet.RingPlace{}, name == "withdrawn", "the entry is empty")
			})
		})
	}
}

// A ring that is disconnected and destroyed while a payload is under way gives its memory
// back, and what still comes touches neither that nor the frame.
func TestRingDestroyedUnderWay(t *testing.T) {
	onAllWires(t, func(t *testing.T, level func(*datasheet.CreateEndpointBody), options ...option) {
		w, a, b := ringPair(t, level, options...)
		place := b.place(1, 60_000)
		s, frame := b.receive(60_000)
		free := b.n.e.FreeSRAM()
		a.transmit(pattern(ringMessage, 1), pattern(60_000, 1), 1)
		a.n.e.Step()
		b.n.e.Step()
		must.Be(t, s.LoadStatus().Done(), false, "all of it has come")
		b.destroy()
		if st := s.LoadStatus(); st != datasheet.StatusDone|datasheet.StatusFlushed|datasheet.StatusOpReceive || s.Length|s.Sent|s.Place != 0 {
			t.Errorf("%v, %d of %d at %d", st, s.Length, s.Sent, s.Place)
		}
		if b.n.e.FreeSRAM() <= free {
			t.Error("device memory has not come back")
		}
		clear(place)
		clear(b.n.sram)
		w.settle()
		zeroes(t, "the place", place)
		zeroes(t, "the frame", frame)
		zeroes(t, "device memory", b.n.sram)
	})
}

// TestRingSendsThatWait: sends beyond the window go on once a message of the peer has acknowledged those before them,
// although the host polls nothing but its sends.
func TestRingSendsThatWait(t *testing.T) {
	const sends, window = 100, 64
	_, a, b := ringPair(t, func(b *datasheet.CreateEndpointBody) {
		reliableBody(b)
		b.SendLog2, b.RecvLog2 = 7, 7
	}, exactly(nil), withSlots)
	a.byPath, b.byPath = true, true
	a.receive(-1)
	var sent, got []*datasheet.RingSlot
	for range sends {
		s, _ := b.receive(-1)
		got = append(got, s)
	}
	for i := range sends {
		sent = append(sent, a.transmit(pattern(ringMessage, uint64(i)), nil, 0))
	}
	for range window {
		b.way().Poll(true, 1)
	}
	b.transmit(pattern(ringMessage, 1), nil, 0)
	a.way().Poll(true, 1)
	for range 1000 {
		a.way().Poll(false, 1)
		b.way().Poll(true, 1)
	}
	for i := range sends {
		if !sent[i].LoadStatus().Done() || !got[i].LoadStatus().Done() {
			t.Fatalf("message %d: sent %v, received %v", i, sent[i].LoadStatus(), got[i].LoadStatus())
		}
	}
}
