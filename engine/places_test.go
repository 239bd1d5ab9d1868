package engine_test

import (
	"testing"
)

// sentFrame is a data frame: its PSN, counted from the first, and what it holds.
type sentFrame struct {
	number, message, offset, length uint32
}

// TestFramesOfAnySize: frames of different sizes, in any order, make a message as
// long as each has its own place.
func TestFramesOfAnySize(t *testing.T) {
	data := pattern(3000, 4)
	parts := []sentFrame{{0, 0, 0, 1}, {1, 0, 1, 999}, {2, 0, 1000, 1500}, {3, 0, 2500, 500}}
	for order := range 24 {
		x := newImpostor(t, nil, smallMemory)
		d, in := x.p.descriptor(len(data))
		x.p.postRecv(d)
		x.w.b.e.Step()
		rest := append([]sentFrame(nil), parts...)
		for n := order; len(rest) > 0; n /= 4 {
			i := n % len(rest)
			f := rest[i]
			rest = append(rest[:i], rest[i+1:]...)
			x.send(f.number, 0, 0, uint32(len(data)), f.offset, data[f.offset:f.offset+f.length])
		}
		if !d.Status().Done() || d.Status().Failed() {
			t.Fatalf("order %d: %v", order, d.Status())
		}
		mustEqual(t, in[0], data)
	}
}
