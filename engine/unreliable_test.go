package engine_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// one are the flags of a message of one frame.
const one = descriptors.FrameFirst | descriptors.FrameLast

// TestFramesOfNoMessage: frames that neither begin a message nor go on with one do
// nothing, whether a message has come before or not, and however empty they are.
func TestFramesOfNoMessage(t *testing.T) {
	for _, before := range []uint32{0, 1} {
		for _, receives := range []uint32{0, 2} {
			t.Run(fmt.Sprintf("%d messages, %d receives", before, receives), func(t *testing.T) {
				x := newImpostor(t, unreliableVI)
				for range before + receives {
					d, _ := x.p.descriptor(100)
					x.p.postRecv(d)
				}
				for m := range before {
					x.send(0, one, m, 5, 0, []byte("first"))
				}
				for m := range uint32(3) {
					for range 17 {
						x.send(0, 0, m, 0, 0, nil)
						x.send(0, descriptors.FrameLast, m, 5, 5, nil)
						x.send(0, descriptors.FrameLast, m, 5, 0, nil)
						x.send(0, descriptors.FrameLast, m, 5, 0, []byte("again"))
					}
				}
				if c := x.counts(); c.RecvCompleted != before {
					t.Fatalf("%d messages have completed %d receives", before, c.RecvCompleted)
				}
				x.mustServe(t)
			})
		}
	}
}

// TestEmptyPartsOfAMessage: no frame but that of an empty message is empty.
func TestEmptyPartsOfAMessage(t *testing.T) {
	x := newImpostor(t, unreliableVI)
	d, in := x.p.descriptor(100)
	x.p.postRecv(d)
	x.send(0, descriptors.FrameFirst, 0, 5, 0, nil) // begins nothing
	x.send(0, descriptors.FrameLast, 0, 5, 0, []byte("wrong"))
	x.send(0, descriptors.FrameFirst, 1, 5, 0, []byte("go"))
	x.send(0, 0, 1, 5, 2, nil)
	x.send(0, descriptors.FrameLast, 1, 5, 2, []byte("od!"))
	x.send(0, descriptors.FrameLast, 1, 5, 5, nil)
	if d.Status().Failed() || string(in[0][:d.Length()]) != "good!" {
		t.Errorf("%v, %q", d.Status(), in[0][:d.Length()])
	}
	if c := x.counts(); c.RecvCompleted != 1 {
		t.Errorf("%d receives completed", c.RecvCompleted)
	}
	x.mustServe(t)
}
