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
// sizes, at each reliable level and with and without a shadow: all come, in order, whole.
func testRingMessages(w *World) {
	levels := w.A.Query().Reliability & w.B.Query().Reliability
	for _, level := range []via.Reliability{via.ReliableDelivery, via.ReliableReception} {
		if levels&level == 0 {
			continue
		}
		for _, shadow := range []bool{false, true} {
			o := reliableRing()
			o.Reliability, o.Shadow = level, shadow
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
