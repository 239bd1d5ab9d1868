package wire_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/wire"
)

// tapped is a memory wire of which one end has a tap, and what that has seen.
type tapped struct {
	near *wire.Tap
	far  *wire.Memory
	seen []string
}

func newTapped(t *testing.T) *tapped {
	t.Helper()
	a, b, err := wire.NewMemory(wire.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := &tapped{far: b}
	w.near = wire.NewTap(a, func(sent bool, frame []byte) {
		direction := "<"
		if sent {
			direction = ">"
		}
		w.seen = append(w.seen, direction+string(bytes.TrimRight(frame, "\x00")))
	})
	t.Cleanup(func() { w.near.Close(); w.far.Close() })
	return w
}

// frame is text filled up to the shortest frame that there is.
func frame(text string) []byte { return append([]byte(text), make([]byte, 100-len(text))...) }

func TestTapShowsWhatCrosses(t *testing.T) {
	w := newTapped(t)
	send := func(p wire.Port, text string) {
		copy(p.Reserve(100), frame(text))
		p.Commit()
		p.Flush()
	}
	send(w.near, "one")
	copy(w.near.Reserve(100), frame("never sent"))
	send(w.near, "two") // replaces it
	send(w.far, "three")
	for range 3 { // a frame that is looked at again is the same one
		if p := w.near.Receive(); !bytes.Equal(p, frame("three")) {
			t.Errorf("%q came", p)
		}
	}
	w.near.Release()
	send(w.far, "four")
	if w.near.Receive() == nil {
		t.Error("the fourth did not come")
	}
	w.near.Release()
	if d := cmp.Diff([]string{">one", ">two", "<three", "<four"}, w.seen); d != "" {
		t.Error(d)
	}
	for _, want := range []string{"one", "two"} {
		if p := w.far.Receive(); !bytes.Equal(p, frame(want)) {
			t.Errorf("%q came instead of %s", p, want)
		}
		w.far.Release()
	}
}

// TestTapShowsWholeFrames: what comes in parts is shown once it is whole, and not at all if its
// sender has given it up.
func TestTapShowsWholeFrames(t *testing.T) {
	w := newTapped(t)
	copy(w.far.Reserve(100), frame("parts"))
	w.far.Publish(50)
	if p := w.near.Receive(); p != nil || len(w.seen) > 0 {
		t.Errorf("half a frame came: %d bytes, %q was shown", len(p), w.seen)
	}
	w.far.Commit()
	w.far.Flush()
	if p := w.near.Receive(); !bytes.Equal(p, frame("parts")) {
		t.Errorf("%d bytes came", len(p))
	}
	w.near.Release()
	copy(w.far.Reserve(100), frame("given up"))
	w.far.Publish(50)
	w.far.Abort()
	for range 2 {
		if p := w.near.Receive(); p != nil {
			t.Errorf("%d bytes of a frame that was given up", len(p))
		}
	}
	if d := cmp.Diff([]string{"<parts"}, w.seen); d != "" {
		t.Error(d)
	}
}

// TestTapBehindFaults: a tap shows what is on the wire, not what was to be sent.
func TestTapBehindFaults(t *testing.T) {
	w := newTapped(t)
	f, err := wire.NewFault(w.near, wire.FaultOptions{Loss: 1})
	if err != nil {
		t.Fatal(err)
	}
	copy(f.Reserve(100), frame("lost"))
	f.Commit()
	f.Flush()
	if len(w.seen) > 0 {
		t.Errorf("%q was shown", w.seen)
	}
	if err := f.Claim(descriptors.MAC{2}); err != nil || !f.Drained() {
		t.Errorf("a memory wire claims nothing and keeps nothing: %v", err)
	}
	if f.SetLink(false); w.far.LinkUp() || f.LinkUp() {
		t.Error("the plug is still in")
	}
}
