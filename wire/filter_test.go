package wire_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/wire"
)

// filtered is a memory wire of which one end has a filter.
type filtered struct {
	near wire.Port
	far  *wire.Memory
}

func newFiltered(t *testing.T, o wire.MemoryOptions, change wire.FilterFunc) *filtered {
	t.Helper()
	a, b := memoryPair(t, o)
	w := &filtered{wire.NewFilter(a, change), b}
	t.Cleanup(func() { w.near.Close(); w.far.Close() })
	return w
}

// received is what has come at a port.
func received(p wire.Port) (texts []string) {
	for f := p.Receive(); f != nil; f = p.Receive() {
		texts = append(texts, string(bytes.TrimRight(f, "\x00")))
		p.Release()
	}
	return texts
}

// TestFilter: frames are lost, doubled, held back, changed and forged, in both directions.
func TestFilter(t *testing.T) {
	var held []byte
	spontaneous := [][]byte{frame("by itself")}
	change := func(_ bool, f []byte) [][]byte {
		switch {
		case f == nil:
			defer func() { spontaneous = nil }()
			return spontaneous
		case bytes.HasPrefix(f, []byte("lose")):
			return nil
		case bytes.HasPrefix(f, []byte("double")):
			return [][]byte{f, f}
		case bytes.HasPrefix(f, []byte("hold")):
			held = f
			return nil
		case bytes.HasPrefix(f, []byte("change")):
			f[0] = 'C'
			return [][]byte{f, held}
		}
		return [][]byte{f}
	}
	w := newFiltered(t, wire.MemoryOptions{}, change)
	want := []string{"as it is", "double", "double", "Change", "hold"}
	for _, text := range []string{"as it is", "lose", "double", "hold", "change"} {
		must.Be(t, send(w.near, frame(text)) && send(w.far, frame(text)), true, "no room")
	}
	should.Be(t, cmp.Diff(want, received(w.near)), "")
	should.Be(t, cmp.Diff(append(want, "by itself"), received(w.far)), "")
}

// TestFilterWithoutRoom: what the wire has no room for waits, in its order, and so does what is
// sent after it.
func TestFilterWithoutRoom(t *testing.T) {
	w := newFiltered(t, wire.MemoryOptions{Ring: 4096, MTU: 160}, func(_ bool, f []byte) [][]byte {
		if f == nil {
			return nil
		}
		return [][]byte{f, f, f}
	})
	sent, got := 0, 0
	for send(w.near, frame("thrice")) {
		if sent++; sent > 4096 {
			t.Fatal("the wire has room without end")
		}
	}
	should.Be(t, w.near.(wire.Drainer).Drained(), false, "drained with frames that wait")
	for {
		n := len(received(w.far))
		if got += n; n == 0 {
			break
		}
		w.near.Flush()
	}
	should.Hold(t, got == 3*sent && w.near.(wire.Drainer).Drained(), "%d frames of %d have come", got, 3*sent)
}

// TestFilterHides: there are no frames in parts through it, and nothing counts as without loss.
func TestFilterHides(t *testing.T) {
	w := newFiltered(t, wire.MemoryOptions{}, func(_ bool, f []byte) [][]byte { return [][]byte{f} })
	var p wire.Port = w.near
	if _, ok := p.(interface{ Wire() uint32 }); ok {
		t.Error("it says that it loses nothing")
	}
	copy(w.far.Reserve(100), frame("parts"))
	w.far.Publish(50)
	should.Be(t, p.Receive() != nil, false, "half a frame has come")
	w.far.Commit()
	w.far.Flush()
	should.Same(t, p.Receive(), frame("parts"), "came")
	p.Release()
	should.Be(t, p.Reserve(p.MTU()+1) != nil, false, "there is room for more than a frame")
}

// frame is text filled up to the shortest frame that there is.
func frame(text string) []byte { return append([]byte(text), make([]byte, 100-len(text))...) }
