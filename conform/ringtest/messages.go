package ringtest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/conform/viatest"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// pattern is a payload of n bytes that says which message it is of.
func pattern(b []byte, message uint32) {
	for i := range b {
		b[i] = byte(message) + byte(i*7)
	}
}

// testMessages sends more messages than the rings have entries, with payloads of many
// sizes, at each reliable level and with each access: all come, in order, whole.
func testMessages(t viatest.T, p *viatest.Pair) {
	levels := p.A.Query().Reliability & p.B.Query().Reliability
	for _, level := range []via.Reliability{via.ReliableDelivery, via.ReliableReception} {
		if levels&level == 0 {
			continue
		}
		for _, access := range []ring.Access{ring.Measured, ring.Shadow} {
			o := reliable()
			o.Reliability, o.Access = level, access
			x, y := connect(t, p, o)
			exchange(t, p, x, y)
			viatest.OK(t, x.Close())
			viatest.OK(t, y.Close())
		}
	}
}

func exchange(t viatest.T, p *viatest.Pair, x, y *ring.Ring) {
	t.Helper()
	const messages = 60
	sizes := []int{0, 1, 4096, 128, 63, 2000, 3999}
	entries := x.Entries()
	m := alloc(t, p.A, entries*4096)
	want := make([]byte, 4096)
	sent, got := uint32(0), uint32(0)
	p.Until(t, "all messages", func() bool {
		if e, err := x.GetSend(); err == nil {
			size := sizes[sent%uint32(len(sizes))]
			f := ring.Frame{Memory: m, Offset: int(sent) % entries * 4096, Length: size}
			pattern(f.Bytes(), sent)
			for i := range e.Bytes() {
				e.Bytes()[i] = byte(i)
			}
			binary.LittleEndian.PutUint32(viatest.Must(e.Reserve(4))(t), sent)
			if size > 0 {
				viatest.OK(t, e.Attach(f, nil))
			}
			viatest.OK(t, x.ReleaseSend(e))
			sent++
		} else if err != ring.ErrFull {
			t.Fatal(err)
		}
		e, err := y.GetRecv()
		if err == ring.ErrEmpty {
			return false
		}
		viatest.OK(t, err)
		if n := binary.LittleEndian.Uint32(viatest.Must(e.Scan(4))(t)); n != got {
			t.Fatalf("message %d, want %d", n, got)
		}
		for i, b := range e.Bytes()[4:] {
			if b != byte(i+4) {
				t.Fatalf("message %d: byte %d is %d", got, i+4, b)
			}
		}
		size := sizes[got%uint32(len(sizes))]
		pattern(want[:size], got)
		if e.Length() != size || e.Discarded() != 0 || !bytes.Equal(e.Frame().Bytes()[:size], want[:size]) {
			t.Fatalf("message %d: payload of %d bytes, %d discarded, want %d", got, e.Length(), e.Discarded(), size)
		}
		if tag, tagged := e.Tag(); tagged {
			t.Errorf("message %d has tag %d", got, tag)
		}
		viatest.OK(t, y.ReleaseRecv(e))
		got++
		return got == messages
	})
	settle(t, p, x)
	viatest.OK(t, m.Deregister(viatest.Context(t)))
}

// testBestEffort has a receiver that does not keep up, on a ring without reliability: the
// sender is never held up, what comes is whole and in order, and another ring goes on.
func testBestEffort(t viatest.T, p *viatest.Pair) {
	const messages = 200
	slow, idle := connect(t, p, &ring.Options{Entries: 8, MaxPayload: 512})
	x, y := connect(t, p, reliable())
	m := alloc(t, p.A, 512)
	pattern(m.Bytes(), 9)
	for i := range messages {
		send(t, slow, p, fmt.Sprintf("message %3d", i), ring.Frame{Memory: m, Length: 512}, nil)
		if i%50 == 0 {
			send(t, x, p, "other", ring.Frame{}, nil)
			viatest.OK(t, y.ReleaseRecv(receive(t, y, p, "other")))
		}
	}
	settle(t, p, slow)
	// Nobody can say when the last has come, on a wire that loses some.
	got, last := 0, -1
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
		p.A.Poll()
		p.B.Poll()
		e, err := idle.GetRecv()
		if err == ring.ErrEmpty {
			continue
		}
		viatest.OK(t, err)
		var n int
		if _, err := fmt.Sscanf(string(e.Bytes()[:11]), "message %d", &n); err != nil || n <= last {
			t.Errorf("message %q after number %d: %v", e.Bytes()[:11], last, err)
		}
		if e.Length() != 512 || !bytes.Equal(e.Frame().Bytes()[:512], m.Bytes()) {
			t.Errorf("message %d: another payload, of %d bytes", n, e.Length())
		}
		last = n
		got++
		if got > idle.Entries() {
			t.Fatalf("%d messages were kept in %d entries", got, idle.Entries())
		}
	}
	if got == 0 {
		t.Error("no message has come")
	}
}

// testTags has payloads land where their tags say, and elsewhere if they do not match.
func testTags(t viatest.T, p *viatest.Pair) {
	x, y := connect(t, p, reliable())
	from, into := alloc(t, p.A, 4096), alloc(t, p.B, 3*4096)
	pattern(from.Bytes(), 3)
	page := func(n int) ring.Frame { return ring.Frame{Memory: into, Offset: n * 4096, Length: 4096} }
	tagged := func(tag uint32, size int) *ring.Entry {
		t.Helper()
		e := get(t, x, p)
		viatest.OK(t, e.SetTag(tag))
		viatest.OK(t, e.Attach(ring.Frame{Memory: from, Length: size}, nil))
		viatest.OK(t, x.ReleaseSend(e))
		e = receive(t, y, p, "")
		if got, ok := e.Tag(); got != tag || !ok {
			t.Errorf("tag %#x, %v, want %#x", got, ok, tag)
		}
		return e
	}
	const tag = 0xabcdef07
	viatest.OK(t, y.SetPlace(tag, page(1)))
	e := tagged(tag, 4096)
	if !e.Placed() || e.Length() != 4096 || !bytes.Equal(page(1).Bytes(), from.Bytes()) {
		t.Errorf("%d bytes, placed %v", e.Length(), e.Placed())
	}
	viatest.OK(t, y.ReleaseRecv(e))
	// Others with the same entry of the table go to the ring's frame.
	clear(into.Bytes())
	for _, other := range []uint32{tag + 256, 7, tag ^ 1<<31, tag + 1} {
		e := tagged(other, 4000)
		if e.Placed() || e.Length() != 4000 || !bytes.Equal(e.Frame().Bytes()[:4000], from.Bytes()[:4000]) {
			t.Errorf("tag %#x: %d bytes, placed %v", other, e.Length(), e.Placed())
		}
		viatest.OK(t, y.ReleaseRecv(e))
	}
	// A place that is too small takes nothing, and neither does the frame.
	viatest.OK(t, y.SetPlace(tag, ring.Frame{Memory: into, Length: 100}))
	if e = tagged(tag, 101); e.Length() != 0 || e.Discarded() != 101 {
		t.Errorf("too small: %d bytes, %d discarded", e.Length(), e.Discarded())
	}
	viatest.OK(t, y.ReleaseRecv(e))
	// One that has been withdrawn is none.
	viatest.OK(t, y.EndPlace(viatest.Context(t), tag))
	if e = tagged(tag, 5); e.Placed() || e.Length() != 5 {
		t.Errorf("withdrawn: %d bytes, placed %v", e.Length(), e.Placed())
	}
	viatest.OK(t, y.ReleaseRecv(e))
	if !bytes.Equal(into.Bytes(), make([]byte, 3*4096)) {
		t.Error("something landed where it was not to")
	}
}

// testDiscarded sends payloads for which there is no room: the message comes, and says so.
func testDiscarded(t viatest.T, p *viatest.Pair) {
	o := reliable()
	o.FrameSize = 1000
	x, y := connect(t, p, o)
	m := alloc(t, p.A, 4096)
	for _, size := range []int{1001, 1000, 4096, 0, 1} {
		send(t, x, p, "message", ring.Frame{Memory: m, Length: size}, nil)
		e := receive(t, y, p, "message")
		want, lost := size, 0
		if size > 1000 {
			want, lost = 0, size
		}
		if e.Length() != want || e.Discarded() != lost {
			t.Errorf("%d bytes: %d came, %d discarded", size, e.Length(), e.Discarded())
		}
		viatest.OK(t, y.ReleaseRecv(e))
	}
	o.FrameSize = ring.NoPayload
	x, y = connect(t, p, o)
	send(t, x, p, "message", ring.Frame{Memory: m, Length: 1}, nil)
	e := receive(t, y, p, "message")
	if e.Length() != 0 || e.Discarded() != 1 || e.Frame() != (ring.Frame{}) {
		t.Errorf("without a frame %d bytes came, %d discarded", e.Length(), e.Discarded())
	}
	// A frame that is attached takes the next message of this entry.
	into := alloc(t, p.B, 10)
	viatest.OK(t, e.Attach(ring.Frame{Memory: into, Length: 10}, nil))
	viatest.OK(t, y.ReleaseRecv(e))
	for i := range y.Entries() {
		send(t, x, p, "message", ring.Frame{Memory: m, Length: 1}, nil)
		e := receive(t, y, p, "message")
		if want := i / (y.Entries() - 1); e.Length() != want {
			t.Errorf("message %d: %d bytes, want %d", i, e.Length(), want)
		}
		viatest.OK(t, y.ReleaseRecv(e))
	}
}
