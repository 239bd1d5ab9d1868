package ring_test

import (
	"testing"
	"unsafe"

	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// alignedMemory returns n bytes that start at a cache line.
func alignedMemory(n int) []byte {
	b := make([]byte, n+64)
	at := int(-uintptr(unsafe.Pointer(&b[0])) % 64)
	return b[at : at+n : at+n]
}

// TestFramesAreInPlace: a frame is not copied where that is not needed.
func TestFramesAreInPlace(t *testing.T) {
	for _, tt := range []struct {
		name   string
		layout ring.Layout
		first  int // length of a frame before it
		n      int
		copied bool
	}{
		{"one buffer", ring.Layout{Log2: 4, Capacity: 64, Apart: true}, 64, 64, false},
		{"several", ring.Layout{Log2: 4, Capacity: 64}, 64, 500, false},
		{"several, apart", ring.Layout{Log2: 4, Capacity: 64, Apart: true}, 64, 500, true},
		{"over the end of the ring", ring.Layout{Log2: 4, Capacity: 64}, 15 * 64, 65, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.layout.C2S, tt.layout.S2C = 1, 1
			p := newPair(t, tt.layout, true)
			inside := func(b []byte) bool {
				at, first := uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&p.memory[0]))
				return at >= first && at < first+uintptr(len(p.memory))
			}
			for _, way := range []struct {
				s *ring.Sender
				r *ring.Receiver
			}{{p.clientSends, p.serverReceives}, {p.serverSends, p.clientReceives}} {
				put(way.s, make([]byte, tt.first))
				way.s.Flush()
				way.r.Receive()
				way.r.Release()
				way.r.Receive()
				b := way.s.Reserve(tt.n)
				way.s.Commit()
				way.s.Flush()
				if f := way.r.Receive(); inside(b) == tt.copied || inside(f) == tt.copied {
					t.Errorf("reserved in shared memory: %v, received: %v", inside(b), inside(f))
				}
			}
		})
	}
}
