package engine_test

import (
	"fmt"
	"testing"

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

func TestRingMessages(t *testing.T) {
	onAllWires(t, func(t *testing.T, change func(*datasheet.CreateEndpointBody), options ...option) {
		_, a, b := ringPair(t, change, options...)
		for i, size := range []int{0, 1, 64, 1000, 2048 - datasheet.HeaderSize - ringMessage, 2048 - datasheet.HeaderSize - ringMessage + 1, 2048, 4096, 8192, maxPayload} {
			message, payload := pattern(ringMessage, uint64(i)), pattern(size, uint64(size))
			for _, way := range [][2]*ring{{a, b}, {b, a}} {
				s, frame := exchange(way[0], way[1], message, payload, 0, size+i)
				arrived(t, s, message, uint32(size), uint32(size), 0, 0)
				mustEqual(t, frame[:size], payload)
			}
			s, _ := exchange(a, b, message, nil, 0, -1)
			arrived(t, s, message, 0, 0, 0, 0)
		}
		if n := b.n.e.Counter(datasheet.CounterPayloadsDiscarded); n != 0 {
			t.Errorf("%d payloads discarded", n)
		}
	})
}

// A payload without a frame, or with one that is too small, is discarded whole, counted, and
// the message is there all the same.
func TestRingDiscards(t *testing.T) {
	onAllWires(t, func(t *testing.T, change func(*datasheet.CreateEndpointBody), options ...option) {
		_, a, b := ringPair(t, change, options...)
		discarded := uint64(0)
		for _, frame := range []int{-1, 0, 1, 2999, 3000} {
			message := pattern(ringMessage, uint64(frame+2))
			s, mem := exchange(a, b, message, pattern(3000, 9), 0, frame)
			want := uint32(3000)
			if frame < 3000 {
				want = 0
				discarded++
				zeroes(t, "the frame", mem)
			}
			arrived(t, s, message, want, 3000, 0, 0)
			if n := b.n.e.Counter(datasheet.CounterPayloadsDiscarded); n != discarded {
				t.Fatalf("%d payloads discarded, want %d", n, discarded)
			}
		}
	})
}

// The payload of a message with a tag goes where the table says, and elsewhere to the frame.
func TestRingTags(t *testing.T) {
	onAllWires(t, func(t *testing.T, change func(*datasheet.CreateEndpointBody), options ...option) {
		_, a, b := ringPair(t, change, options...)
		message, payload := pattern(ringMessage, 1), pattern(5000, 2)
		frame := func(mem []byte, want bool) {
			t.Helper()
			if want {
				mustEqual(t, mem[:len(payload)], payload)
				return
			}
			zeroes(t, "memory", mem)
		}
		const tag = 0xabc00107
		at := b.place(tag, 6000)
		s, own := exchange(a, b, message, payload, tag, 8192)
		arrived(t, s, message, 5000, 5000, 0x107%256+1, tag)
		frame(at, true)
		frame(own, false)
		for _, other := range []uint32{tag - 256, tag + 1} { // a stale one, and one of another entry
			clear(at)
			s, own = exchange(a, b, message, payload, other, 8192)
			arrived(t, s, message, 5000, 5000, 0, other)
			frame(at, false)
			frame(own, true)
		}
		// Without a payload nothing is looked at.
		s, _ = exchange(a, b, message, nil, tag, 100)
		arrived(t, s, message, 0, 0, 0, tag)
		// Too small, or not there: discarded, though there is a frame.
		small := b.place(tag, 4999)
		s, own = exchange(a, b, message, payload, tag, 8192)
		arrived(t, s, message, 0, 5000, 0, tag)
		frame(small, false)
		frame(own, false)
		for name, spoil := range map[string]func(p *datasheet.RingPlace){
			"handle":  func(p *datasheet.RingPlace) { p.Handle ^= 1 << 25 },
			"bounds":  func(p *datasheet.RingPlace) { p.Address += memSize },
			"wrapped": func(p *datasheet.RingPlace) { p.Address = ^uint64(0) - 10 },
			"length":  func(p *datasheet.RingPlace) { p.Length = ^uint32(0); p.Address += memSize },
		} {
			b.place(tag, 6000)
			spoil(&b.table[7])
			s, own = exchange(a, b, message, payload, tag, 8192)
			arrived(t, s, message, 0, 5000, 0, tag)
			zeroes(t, name, own)
		}
		if n := b.n.e.Counter(datasheet.CounterPayloadsDiscarded); n != 5 {
			t.Errorf("%d payloads discarded, want 5", n)
		}
	})
}

// A ring whose host does not keep up loses messages, counted, and nobody waits.
func TestRingDrops(t *testing.T) {
	_, a, b := ringPair(t, nil)
	for range 2 {
		b.receive(-1)
	}
	const n = 10
	for i := range n {
		s := a.transmit(pattern(ringMessage, uint64(i)), nil, 0)
		a.n.w.settle()
		if s.LoadStatus() != datasheet.StatusDone {
			t.Fatalf("send %d: %v", i, s.LoadStatus())
		}
	}
	if got := b.n.e.Counter(datasheet.CounterReceiveQueueEmpty); got != n-2 {
		t.Errorf("%d messages counted as dropped, want %d", got, n-2)
	}
	if len(b.n.events) != 0 {
		t.Errorf("events: %+v", b.n.events)
	}
	for i := range 2 {
		arrived(t, &b.recv[i], pattern(ringMessage, uint64(i)), 0, 0, 0, 0)
	}
	s, _ := exchange(a, b, pattern(ringMessage, 77), nil, 0, -1)
	arrived(t, s, pattern(ringMessage, 77), 0, 0, 0, 0)
}

// A reliable ring waits for a free slot, and loses nothing.
func TestRingCredit(t *testing.T) {
	for _, options := range [][]option{nil, {exactly(nil)}} {
		w, a, b := ringPair(t, func(b *datasheet.CreateEndpointBody) { b.Reliability = datasheet.ReliableDelivery }, options...)
		var sends []*datasheet.RingSlot
		for i := range ringSlots {
			sends = append(sends, a.transmit(pattern(ringMessage, uint64(i)), pattern(100, uint64(i)), 0))
		}
		w.settle()
		for i, s := range sends {
			if s.LoadStatus().Done() {
				t.Fatalf("send %d is complete, without a receive: %v", i, s.LoadStatus())
			}
		}
		for i, sent := range sends {
			s, frame := b.receive(100)
			w.run(fmt.Sprint("message ", i), func() bool { return s.LoadStatus().Done() && sent.LoadStatus().Done() })
			arrived(t, s, pattern(ringMessage, uint64(i)), 100, 100, 0, 0)
			mustEqual(t, frame, pattern(100, uint64(i)))
		}
	}
}
