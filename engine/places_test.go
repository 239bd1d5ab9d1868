package engine_test

import (
	"bytes"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// sentFrame is a data frame: its PSN, counted from the first, and what it holds.
type sentFrame struct {
	number, message, offset, length uint32
}

// TestOverlappingFrames: a message is whole when each of its places has been sent,
// however many bytes have come.
func TestOverlappingFrames(t *testing.T) {
	const extent = 4000
	for name, frames := range map[string][]sentFrame{
		"at one place":         {{0, 0, 0, 1000}, {1, 0, 0, 1000}, {2, 0, 0, 1000}, {3, 0, 0, 1000}},
		"the end twice":        {{0, 0, 0, 1000}, {1, 0, 1000, 1000}, {2, 0, 3000, 1000}, {3, 0, 3000, 1000}},
		"by a byte":            {{0, 0, 0, 1000}, {1, 0, 999, 1501}, {2, 0, 2500, 1499}},
		"last PSN first":       {{3, 0, 0, 1000}, {2, 0, 0, 1000}, {1, 0, 0, 1000}, {0, 0, 0, 1000}},
		"around one":           {{1, 0, 1000, 1000}, {0, 0, 0, 2000}, {2, 0, 3000, 1000}},
		"behind a later frame": {{2, 0, 1000, 1000}, {0, 0, 0, 1000}, {1, 0, 1500, 2000}},
		"one that others hold": {{1, 0, 0, 1500}, {3, 0, 2500, 1500}, {2, 0, 1000, 1000}},
		"the rest, then all":   {{0, 0, 0, 2000}, {1, 0, 0, 2000}},
		"in the next message":  {{1, 1, 0, 2000}, {2, 1, 0, 2000}, {3, 1, 2000, 1999}},
		"between messages":     {{2, 1, 0, 2000}, {1, 1, 1000, 2000}, {0, 0, 0, 2000}},
		"before a later one":   {{5, 1, 0, 1000}, {6, 0, 0, 2000}, {7, 0, 2000, 2000}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newImpostor(t, nil)
			var in [2][]byte
			for i := range in {
				d, bufs := x.p.descriptor(extent)
				in[i] = bufs[0]
				x.p.postRecv(d)
			}
			x.w.b.e.Step()
			for i, f := range frames {
				x.send(f.number, 0, f.message, extent, f.offset, bytes.Repeat([]byte{byte(i + 1)}, int(f.length)))
			}
			for i, d := range x.p.recv.posted {
				if d.Status().Done() {
					t.Errorf("receive %d is done: %v, %d bytes, of which %d were not sent", i, d.Status(), d.Length(), bytes.Count(in[i], []byte{0}))
				}
			}
			if n := x.w.b.e.Counter(datasheet.CounterFramesDropped); n == 0 {
				t.Error("no frame is dropped")
			}
			x.mustServe(t)
		})
	}
}

// TestEmptyMessageTwice: an empty message that waits for the one before it is whole,
// and no other frame says what it is.
func TestEmptyMessageTwice(t *testing.T) {
	x := newImpostor(t, nil)
	for range 2 {
		d, _ := x.p.descriptor(10)
		x.p.postRecv(d)
	}
	x.w.b.e.Step()
	x.send(1, one, 1, 0, 0, nil)
	x.send(2, one|datasheet.FrameImmediate, 1, 0, 0, nil)
	x.send(0, one, 0, 5, 0, []byte("first"))
	d := x.p.recv.posted[1]
	if _, immediate := d.Immediate(); !d.Status().Done() || d.Status().Failed() || d.Length() != 0 || immediate {
		t.Errorf("%v, %d bytes, immediate data: %v", d.Status(), d.Length(), immediate)
	}
	x.mustServe(t)
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
