package conform

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// testRingMessages sends more messages than the rings have entries, with payloads of many
// sizes, at each reliable level and with each access: all come, in order, whole.
func testRingMessages(w *World) {
	levels := w.A.Query().Reliability & w.B.Query().Reliability
	for _, level := range []via.Reliability{via.ReliableDelivery, via.ReliableReception} {
		if levels&level == 0 {
			continue
		}
		for _, access := range []ring.Access{ring.Measured, ring.Shadow} {
			o := reliableRing()
			o.Reliability, o.Access = level, access
			x, y := w.rings(o)
			exchangeMessages(w, x, y)
			OK(w, x.Close())
			OK(w, y.Close())
		}
	}
}

func exchangeMessages(w *World, x, y *ring.Ring) {
	w.Helper()
	const messages = 60
	sizes := []int{0, 1, 4096, 128, 63, 2000, 3999}
	entries := x.Entries()
	m := w.alloc(w.A, entries*4096)
	want := make([]byte, 4096)
	sent, got := uint32(0), uint32(0)
	w.Until("all messages", func() bool {
		if e, err := x.GetSend(); err == nil {
			size := sizes[sent%uint32(len(sizes))]
			f := ring.Frame{Memory: m, Offset: int(sent) % entries * 4096, Length: size}
			pattern(f.Bytes(), uint64(sent))
			for i := range e.Bytes() {
				e.Bytes()[i] = byte(i)
			}
			binary.LittleEndian.PutUint32(Must(e.Reserve(4))(w), sent)
			if size > 0 {
				OK(w, e.Attach(f, nil))
			}
			OK(w, x.ReleaseSend(e))
			sent++
		} else if err != via.ErrQueueFull {
			w.Fatal(err)
		}
		e, err := y.GetRecv()
		if err == via.ErrNotDone {
			return false
		}
		OK(w, err)
		if n := binary.LittleEndian.Uint32(Must(e.Scan(4))(w)); n != got {
			w.Fatalf("message %d, want %d", n, got)
		}
		for i, b := range e.Bytes()[4:] {
			if b != byte(i+4) {
				w.Fatalf("message %d: byte %d is %d", got, i+4, b)
			}
		}
		size := sizes[got%uint32(len(sizes))]
		pattern(want[:size], uint64(got))
		if e.Length() != size || e.Discarded() != 0 || !bytes.Equal(e.Frame().Bytes()[:size], want[:size]) {
			w.Fatalf("message %d: payload of %d bytes, %d discarded, want %d", got, e.Length(), e.Discarded(), size)
		}
		if tag, tagged := e.Tag(); tagged {
			w.Errorf("message %d has tag %d", got, tag)
		}
		OK(w, y.ReleaseRecv(e))
		got++
		return got == messages
	})
	w.settle(x)
	OK(w, m.Close(Context(w)))
}

// testRingBestEffort has a receiver that does not keep up, on a ring without reliability: the
// sender is never held up, what comes is whole and in order, and another ring goes on.
func testRingBestEffort(w *World) {
	const messages = 200
	slow, idle := w.rings(ring.Options{Entries: 8, MaxPayload: 512})
	x, y := w.rings(reliableRing())
	m := w.alloc(w.A, 512)
	pattern(m.Bytes(), 9)
	for i := range messages {
		w.sendMessage(slow, fmt.Sprintf("message %3d", i), ring.Frame{Memory: m, Length: 512}, nil)
		if i%50 == 0 {
			w.sendMessage(x, "other", ring.Frame{}, nil)
			OK(w, y.ReleaseRecv(w.receiveMessage(y, "other")))
		}
	}
	w.settle(slow)
	// On a wire that loses some it is not known when the last has come.
	got, last := 0, -1
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
		w.A.Poll()
		w.B.Poll()
		e, err := idle.GetRecv()
		if err == via.ErrNotDone {
			continue
		}
		OK(w, err)
		var n int
		if _, err := fmt.Sscanf(string(e.Bytes()[:11]), "message %d", &n); err != nil || n <= last {
			w.Errorf("message %q after number %d: %v", e.Bytes()[:11], last, err)
		}
		if e.Length() != 512 || !bytes.Equal(e.Frame().Bytes()[:512], m.Bytes()) {
			w.Errorf("message %d: another payload, of %d bytes", n, e.Length())
		}
		last = n
		got++
		if got > idle.Entries() {
			w.Fatalf("%d messages were kept in %d entries", got, idle.Entries())
		}
	}
	if got == 0 {
		w.Error("no message has come")
	}
}

// testRingTags has payloads land where their tags say, and elsewhere if they do not match.
func testRingTags(w *World) {
	x, y := w.rings(reliableRing())
	from, into := w.alloc(w.A, 4096), w.alloc(w.B, 3*4096)
	pattern(from.Bytes(), 3)
	page := func(n int) ring.Frame { return ring.Frame{Memory: into, Offset: n * 4096, Length: 4096} }
	tagged := func(tag uint32, size int) *ring.Entry {
		w.Helper()
		e := w.getEntry(x)
		OK(w, e.SetTag(tag))
		OK(w, e.Attach(ring.Frame{Memory: from, Length: size}, nil))
		OK(w, x.ReleaseSend(e))
		e = w.receiveMessage(y, "")
		if got, ok := e.Tag(); got != tag || !ok {
			w.Errorf("tag %#x, %v, want %#x", got, ok, tag)
		}
		return e
	}
	const tag = 0xabcdef07
	OK(w, y.SetPlace(tag, page(1)))
	e := tagged(tag, 4096)
	if !e.Placed() || e.Length() != 4096 || !bytes.Equal(page(1).Bytes(), from.Bytes()) {
		w.Errorf("%d bytes, placed %v", e.Length(), e.Placed())
	}
	OK(w, y.ReleaseRecv(e))
	// Others with the same entry of the table go to the ring's frame.
	clear(into.Bytes())
	for _, other := range []uint32{tag + 256, 7, tag ^ 1<<31, tag + 1} {
		e := tagged(other, 4000)
		if e.Placed() || e.Length() != 4000 || !bytes.Equal(e.Frame().Bytes()[:4000], from.Bytes()[:4000]) {
			w.Errorf("tag %#x: %d bytes, placed %v", other, e.Length(), e.Placed())
		}
		OK(w, y.ReleaseRecv(e))
	}
	// A place that is too small takes nothing, and neither does the frame.
	OK(w, y.SetPlace(tag, ring.Frame{Memory: into, Length: 100}))
	if e = tagged(tag, 101); e.Length() != 0 || e.Discarded() != 101 {
		w.Errorf("too small: %d bytes, %d discarded", e.Length(), e.Discarded())
	}
	OK(w, y.ReleaseRecv(e))
	// One that has been withdrawn is none.
	OK(w, y.EndPlace(Context(w), tag))
	if e = tagged(tag, 5); e.Placed() || e.Length() != 5 {
		w.Errorf("withdrawn: %d bytes, placed %v", e.Length(), e.Placed())
	}
	OK(w, y.ReleaseRecv(e))
	if !bytes.Equal(into.Bytes(), make([]byte, 3*4096)) {
		w.Error("something landed where it was not to")
	}
}

// testRingDiscarded sends payloads for which there is no room: the message comes, and says so.
func testRingDiscarded(w *World) {
	o := reliableRing()
	o.FrameSize = 1000
	x, y := w.rings(o)
	m := w.alloc(w.A, 4096)
	for _, size := range []int{1001, 1000, 4096, 0, 1} {
		w.sendMessage(x, "message", ring.Frame{Memory: m, Length: size}, nil)
		e := w.receiveMessage(y, "message")
		want, lost := size, 0
		if size > 1000 {
			want, lost = 0, size
		}
		if e.Length() != want || e.Discarded() != lost {
			w.Errorf("%d bytes: %d came, %d discarded", size, e.Length(), e.Discarded())
		}
		OK(w, y.ReleaseRecv(e))
	}
	o.FrameSize = ring.NoPayload
	x, y = w.rings(o)
	w.sendMessage(x, "message", ring.Frame{Memory: m, Length: 1}, nil)
	e := w.receiveMessage(y, "message")
	if e.Length() != 0 || e.Discarded() != 1 || e.Frame() != (ring.Frame{}) {
		w.Errorf("without a frame %d bytes came, %d discarded", e.Length(), e.Discarded())
	}
	// A frame that is attached takes the next message of this entry.
	into := w.alloc(w.B, 10)
	OK(w, e.Attach(ring.Frame{Memory: into, Length: 10}, nil))
	OK(w, y.ReleaseRecv(e))
	for i := range y.Entries() {
		w.sendMessage(x, "message", ring.Frame{Memory: m, Length: 1}, nil)
		e := w.receiveMessage(y, "message")
		if want := i / (y.Entries() - 1); e.Length() != want {
			w.Errorf("message %d: %d bytes, want %d", i, e.Length(), want)
		}
		OK(w, y.ReleaseRecv(e))
	}
}
