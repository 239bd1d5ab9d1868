package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// both is an option of two.
func both(first, second option) option {
	return func(c *engine.Config, p *port) {
		first(c, p)
		second(c, p)
	}
}

// TestRingsAtLoss: over wires that lose a fifth of the frames, and more, reliable rings deliver
// all messages, in order, to the places that their tags name.
func TestRingsAtLoss(t *testing.T) {
	for name, c := range map[string]struct {
		wire   option
		credit int // receives that are posted at a time
	}{
		"loss 20 %":   {lossy(1, 0.2, 0, 0, 0), ringSlots},
		"all of it":   {lossy(2, 0.2, 0.1, 0.2, 0.05), ringSlots},
		"in pieces":   {both(inParts(nil), lossy(3, 0.2, 0.1, 0.2, 0.05)), ringSlots},
		"little room": {lossy(4, 0.2, 0, 0, 0), 2},
	} {
		t.Run(name, func(t *testing.T) {
			w, a, b := ringPair(t, reliableBody, c.wire)
			const total, size, room = 300, 3000, 4 * ringSlots
			var slots []*datasheet.RingSlot
			var own, places [][]byte
			posted, sent, came := 0, 0, 0
			w.run("the messages", func() bool {
				for n := len(slots); n < total && n < came+c.credit; n++ {
					b.n.brk = uint64(n%room) * 8192
					s, frame := b.receive(size)
					place := b.place(uint32(n+1), size)
					clear(frame)
					clear(place)
					slots, own, places = append(slots, s), append(own, frame), append(places, place)
				}
				for ; sent < posted && a.send[sent%ringSlots].LoadStatus().Done(); sent++ {
					if st := a.send[sent%ringSlots].LoadStatus(); st != datasheet.StatusDone {
						t.Fatalf("message %d: sent %v", sent, st)
					}
				}
				// Each message has the tag of its own receive, which is there before.
				for ; posted < len(slots) && posted < sent+ringSlots; posted++ {
					a.n.brk = uint64(posted%room) * 8192
					a.transmit(pattern(ringMessage, uint64(posted)), pattern(size, uint64(posted)), uint32(posted+1))
				}
				for ; came < posted && slots[came].LoadStatus().Done(); came++ {
					tag := uint32(came + 1)
					arrived(t, slots[came], pattern(ringMessage, uint64(came)), size, size, tag%datasheet.PayloadEntries+1, tag)
					mustEqual(t, places[came], pattern(size, uint64(came)))
					zeroes(t, "the slot's frame", own[came])
				}
				return came == total
			})
		})
	}
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
		if sent.LoadStatus() != datasheet.StatusDone {
			t.Fatalf("sent: %v", sent.LoadStatus())
		}
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
