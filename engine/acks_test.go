package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// liar answers the data frames of a NIC in place of its peer, which hears nothing.
type liar struct {
	w    *world
	v    *vi
	like datasheet.Header // what the peer's acknowledgements have in common
	base uint32           // PSN of the oldest frame under way
	sent int              // data frames that the NIC has sent
	s    *descriptors.Descriptor
}

// newLiar has n frames under way from v.
func newLiar(t testing.TB, n int) *liar {
	t.Helper()
	w, v, p := pair(t, nil, smallMemory)
	f := &liar{w: w, v: v}
	w.b.port.spoil = func(b []byte) [][]byte {
		if h := datasheet.HeaderAt(b); h.Type == datasheet.FrameAck {
			f.like = *h
		}
		return [][]byte{b}
	}
	r, _ := p.descriptor(n * 1984)
	p.postRecv(r) // which the peer tells
	w.settle()
	w.a.port.spoil = func(b []byte) [][]byte {
		if h := datasheet.HeaderAt(b); h.Type == datasheet.FrameData {
			if f.sent == 0 {
				f.base = h.PSN
			}
			f.sent++
		}
		return nil
	}
	f.s, _ = v.descriptor(n * 1984)
	v.postSend(f.s)
	f.steps(10)
	if f.sent != n || f.like.Key == 0 {
		t.Fatalf("%d frames are under way, key %#x", f.sent, f.like.Key)
	}
	return f
}

func (f *liar) steps(n int) {
	for range n {
		f.w.a.e.Step()
	}
}

// ack has an acknowledgement arrive.
func (f *liar) ack(ack uint32, later uint64, twice uint32) {
	b := alignedBytes(datasheet.HeaderSize)
	h := datasheet.HeaderAt(b)
	*h = f.like
	h.Ack, h.Extent, h.Offset, h.Message = ack, uint32(later), uint32(later>>32), twice
	*f.w.a.port.in = append(*f.w.a.port.in, b)
	f.steps(2)
}

// TestFewAcknowledgements: the frames of a message that goes on are acknowledged together, and
// soon where no more of them come.
func TestFewAcknowledgements(t *testing.T) {
	const frames = 48
	w, v, p := pair(t, nil, smallMemory)
	var acks []uint32
	w.b.port.spoil = func(b []byte) [][]byte {
		if h := datasheet.HeaderAt(b); h.Type == datasheet.FrameAck {
			acks = append(acks, h.Ack)
		}
		return [][]byte{b}
	}
	r, _ := p.descriptor(frames * 1984)
	p.postRecv(r)
	w.settle()
	acks = nil
	first, held := uint32(0), [][]byte{}
	w.a.port.spoil = func(b []byte) [][]byte {
		switch h := datasheet.HeaderAt(b); {
		case h.Type != datasheet.FrameData:
		case h.Offset == 0:
			first = h.PSN
		case h.Offset > 0 && len(held) < frames:
			held = append(held, alignedBytes(len(b)))
			copy(held[len(held)-1], b)
			return nil
		}
		return [][]byte{b}
	}
	s, _ := v.descriptor(frames * 1984)
	v.postSend(s)
	w.settle()
	if len(acks) != 0 || len(held) != frames-1 {
		t.Fatalf("%d frames follow the first, which was acknowledged at once: %d", len(held), acks)
	}
	w.now += 70 * time.Microsecond
	w.settle()
	if len(acks) != 1 || acks[0] != first+1 {
		t.Fatalf("70 us after the first frame, %d, the acknowledgements are %d", first, acks)
	}
	for _, b := range held {
		*w.b.port.in = append(*w.b.port.in, b)
		w.b.e.Step()
	}
	w.settle()
	if !s.Status().Done() || s.Status().Failed() || !r.Status().Done() {
		t.Errorf("%v, %v", s.Status(), r.Status())
	}
	if n := len(acks); n > 1+frames/16+2 {
		t.Errorf("%d acknowledgements of %d frames that came one at a time", n, frames)
	}
}

// TestForgedAcknowledgements floods a sender with acknowledgements: they complete
// nothing that they do not acknowledge, and have few frames sent.
func TestForgedAcknowledgements(t *testing.T) {
	for _, c := range []struct {
		name  string
		flood func(f *liar, i int, r *rand.Rand)
		most  int // frames sent again, of 64
	}{
		{"the same again", func(f *liar, i int, _ *rand.Rand) { f.ack(f.base, 0, 0) }, 0},
		{"one has arrived", func(f *liar, i int, _ *rand.Rand) { f.ack(f.base, 1<<62, 0) }, 0},
		{"three have arrived", func(f *liar, i int, _ *rand.Rand) { f.ack(f.base, 7<<60, 0) }, 61},
		{"all but the first", func(f *liar, i int, _ *rand.Rand) { f.ack(f.base, ^uint64(0), 0) }, 1},
		{"one after the other", func(f *liar, i int, _ *rand.Rand) { f.ack(f.base, 1<<(i%63), 0) }, 64},
		{"never sent", func(f *liar, i int, _ *rand.Rand) { f.ack(f.base+64+1+uint32(i), 1, 0) }, 0},
		{"long ago", func(f *liar, i int, _ *rand.Rand) { f.ack(f.base-1-uint32(i), ^uint64(0), 0) }, 0},
		{"twice", func(f *liar, i int, _ *rand.Rand) { f.ack(f.base, 0, uint32(i)*0x1000_0001) }, 0},
		{"anything", func(f *liar, i int, r *rand.Rand) { f.ack(f.base, r.Uint64()&r.Uint64()&r.Uint64(), r.Uint32()) }, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newLiar(t, 64)
			r := rand.New(rand.NewPCG(1, 1))
			for i := range 5000 {
				c.flood(f, i, r)
			}
			if again := f.sent - 64; again > c.most {
				t.Errorf("%d frames were sent again, %d are allowed", again, c.most)
			}
			should.Be(t, f.s.Status().Done(), false, "the send is done: %v", f.s.Status())
			// Time may pass: a frame is repeated a few times more at most for each that
			// the liar lets arrive.
			for i := range 200 {
				f.w.now += 100 * time.Microsecond
				c.flood(f, i, r)
			}
			if again := f.sent - 64; again > 64*64 {
				t.Errorf("%d frames were sent again within 20 ms", again)
			}
			f.ack(f.base+64, 0, 0)
			if !f.s.Status().Done() || f.s.Status().Failed() {
				t.Errorf("acknowledged, but %v", f.s.Status())
			}
		})
	}
}
