package ring_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// Where things are in a ring (memif.h).
const (
	offsetFlags = 4
	offsetHead  = 6
	offsetTail  = 64
)

// poke writes what a peer may write.
func poke16(p *pair, c2s bool, at int, v uint16) {
	binary.LittleEndian.PutUint16(p.memory[int(p.layout.Offset(c2s, 0))+at:], v)
}

func pokeDescriptor(p *pair, c2s bool, i int, flags, region uint16, length, offset uint32) {
	b := p.memory[int(p.layout.Offset(c2s, 0))+ring.HeaderSize+i*ring.DescriptorSize:]
	binary.LittleEndian.PutUint16(b, flags)
	binary.LittleEndian.PutUint16(b[2:], region)
	binary.LittleEndian.PutUint32(b[4:], length)
	binary.LittleEndian.PutUint32(b[8:], offset)
}

var smallLayout = ring.Layout{C2S: 1, S2C: 1, Log2: 2, Capacity: 64}

// TestReceiverViolations: frames that cannot be.
func TestReceiverViolations(t *testing.T) {
	size := uint32(smallLayout.Size())
	for _, tt := range []struct {
		name string
		c2s  bool // the server receives
		poke func(p *pair)
		says string
	}{
		{"head too far", true, func(p *pair) { poke16(p, true, offsetHead, 5) }, "index"},
		{"head goes back", true, func(p *pair) { poke16(p, true, offsetHead, 0xffff) }, "index"},
		{"tail too far", false, func(p *pair) { poke16(p, false, offsetTail, 5) }, "index"},
		{"tail goes back", false, func(p *pair) { poke16(p, false, offsetTail, 0x8000) }, "index"},
		{"no such region", true, func(p *pair) {
			pokeDescriptor(p, true, 0, 0, 1, 64, 0)
			poke16(p, true, offsetHead, 1)
		}, "region"},
		{"behind the region", true, func(p *pair) {
			pokeDescriptor(p, true, 0, 0, 0, 1, size)
			poke16(p, true, offsetHead, 1)
		}, "end"},
		{"over the end of the region", true, func(p *pair) {
			pokeDescriptor(p, true, 0, 0, 0, 65, size-64)
			poke16(p, true, offsetHead, 1)
		}, "end"},
		{"length wraps", true, func(p *pair) {
			pokeDescriptor(p, true, 0, 0, 0, 0xffffffff, 64)
			poke16(p, true, offsetHead, 1)
		}, "end"},
		{"end wraps", true, func(p *pair) {
			pokeDescriptor(p, true, 0, 0, 0, 0xffffffff, 0xffffffff)
			poke16(p, true, offsetHead, 1)
		}, "end"},
		{"second part outside", true, func(p *pair) {
			pokeDescriptor(p, true, 0, 1, 0, 64, 0)
			pokeDescriptor(p, true, 1, 0, 0, 64, size)
			poke16(p, true, offsetHead, 2)
		}, "end"},
		{"longer than the buffer", false, func(p *pair) {
			pokeDescriptor(p, false, 0, 0, 0, 65, 0)
			poke16(p, false, offsetTail, 1)
		}, "length"},
		{"second part longer than the buffer", false, func(p *pair) {
			pokeDescriptor(p, false, 0, 1, 0, 64, 0)
			pokeDescriptor(p, false, 1, 0, 0, 0xffffffff, 0)
			poke16(p, false, offsetTail, 2)
		}, "length"},
		{"frame without end", true, func(p *pair) {
			for i := range 4 {
				pokeDescriptor(p, true, i, 1, 0, 1, 0)
			}
			poke16(p, true, offsetHead, 4)
		}, "flags"},
	} {
		for _, direct := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, direct %v", tt.name, direct), func(t *testing.T) {
				p := newPair(t, smallLayout, direct)
				r := p.clientReceives
				if tt.c2s {
					r = p.serverReceives
				}
				tt.poke(p)
				for range 3 {
					must.Be(t, r.Receive() != nil, false, "received")
				}
				v := r.Violation()
				must.Hold(t, v != nil && strings.Contains(v.Error(), tt.says), "violation %v, want one of the %s", v, tt.says)
				// It stays, whatever else is written.
				poke16(p, tt.c2s, offsetHead, 0)
				poke16(p, tt.c2s, offsetTail, 0)
				should.Be(t, r.Receive() != nil || r.Violation() != v, false, "it is forgotten")
				r.Release()
			})
		}
	}
}

// TestSenderViolations: buffers that cannot be.
func TestSenderViolations(t *testing.T) {
	size := uint32(smallLayout.Size())
	for _, tt := range []struct {
		name string
		c2s  bool // who sends is the client
		poke func(p *pair)
		n    int
		says string
	}{
		{"tail ahead of head", true, func(p *pair) { poke16(p, true, offsetTail, 5) }, 10, "index"},
		{"tail goes back", true, func(p *pair) { poke16(p, true, offsetTail, 0xfff0) }, 10, "index"},
		{"head too far", false, func(p *pair) { poke16(p, false, offsetHead, 7) }, 10, "index"},
		{"no such region", false, func(p *pair) { pokeDescriptor(p, false, 2, 0, 7, 64, 0) }, 10, "region"},
		{"outside the region", false, func(p *pair) { pokeDescriptor(p, false, 2, 0, 0, 64, size-63) }, 10, "end"},
		{"end wraps", false, func(p *pair) { pokeDescriptor(p, false, 2, 0, 0, 0xffffffff, 0xffffffff) }, 10, "end"},
		{"empty buffer", false, func(p *pair) { pokeDescriptor(p, false, 2, 0, 0, 0, 0) }, 10, "length"},
		{"second buffer outside", false, func(p *pair) { pokeDescriptor(p, false, 3, 0, 0, 64, size) }, 100, "end"},
	} {
		for _, direct := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, direct %v", tt.name, direct), func(t *testing.T) {
				p := newPair(t, smallLayout, direct)
				s, fill := p.serverSends, 2
				if tt.c2s {
					s, fill = p.clientSends, 4
				}
				// Use up what is known of the ring.
				for i := range fill {
					must.Be(t, put(s, []byte{byte(i)}), true, "no room to begin with")
				}
				if tt.c2s {
					s.Flush()
					poke16(p, true, offsetTail, 2)
					put(s, []byte{4})
					put(s, []byte{5})
				}
				tt.poke(p)
				for range 3 {
					if b := s.Reserve(tt.n); b != nil {
						// What was known before may still be used.
						must.Be(t, s.Violation() != nil, false, "a buffer after a violation")
						s.Commit()
					}
				}
				v := s.Violation()
				must.Hold(t, v != nil && strings.Contains(v.Error(), tt.says), "violation %v, want one of the %s", v, tt.says)
				s.Flush()
				should.Be(t, s.Reserve(1) != nil || s.Drained(), false, "it is forgotten")
			})
		}
	}
}

// TestIncompleteFrame: a frame whose end has not come yet waits.
func TestIncompleteFrame(t *testing.T) {
	p := newPair(t, smallLayout, true)
	home := uint32(smallLayout.Size()) - 1024
	pokeDescriptor(p, true, 0, 1, 0, 64, home)
	poke16(p, true, offsetHead, 1)
	r := p.serverReceives
	must.Be(t, r.Receive() != nil || r.Violation() != nil, false, "half a frame")
	pokeDescriptor(p, true, 1, 0, 0, 10, home+64)
	poke16(p, true, offsetHead, 2)
	if f := r.Receive(); len(f) != 74 {
		t.Errorf("received %d bytes, %v", len(f), r.Violation())
	}
}

// TestLongFramesAreSkipped: no NIC has them, but they violate nothing.
func TestLongFramesAreSkipped(t *testing.T) {
	l := ring.Layout{C2S: 1, S2C: 1, Log2: 2, Capacity: ring.MaxFrame}
	for _, direct := range []bool{true, false} {
		p := newPair(t, l, direct)
		pokeDescriptor(p, true, 0, 0, 0, ring.MaxFrame+1, 0)
		pokeDescriptor(p, true, 1, 1, 0, ring.MaxFrame, 0)
		pokeDescriptor(p, true, 2, 0, 0, ring.MaxFrame, 0)
		pokeDescriptor(p, true, 3, 0, 0, 9, 0)
		poke16(p, true, offsetHead, 4)
		if f := p.serverReceives.Receive(); len(f) != 9 {
			t.Errorf("received %d bytes", len(f))
		}
		if _, _, tooLong := p.serverReceives.Counts(); tooLong != 2 {
			t.Errorf("%d frames were too long", tooLong)
		}
	}
}

// TestManyParts: a frame in more buffers than anybody needs.
func TestManyParts(t *testing.T) {
	p := newPair(t, ring.Layout{C2S: 1, S2C: 1, Log2: 11, Capacity: 64}, true)
	for i := range 1 << 11 {
		pokeDescriptor(p, true, i, 1, 0, 0, 0)
	}
	poke16(p, true, offsetHead, 1<<11)
	should.Be(t, p.serverReceives.Receive() != nil, false, "a frame without end")
	if v := p.serverReceives.Violation(); v == nil || v.Value != ring.MaxParts+1 {
		t.Errorf("violation %v", v)
	}
}
