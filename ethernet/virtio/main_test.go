package virtio_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/leaktest"
)

// patience ends tests that do not end by themselves.
const patience = time.Minute

func TestMain(m *testing.M) { leaktest.Main(m) }

func newPool(t testing.TB, c ethernet.PoolConfig) *ethernet.Pool {
	t.Helper()
	p, err := ethernet.NewPool(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func closePort(t testing.TB, p ethernet.Port) {
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
}

// fill makes the bytes of a frame from its number, which is in them.
func fill(b []byte, number int) {
	copy(b, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0xaa, 0x88, 0xb5})
	for i := ethernet.HeaderSize; i < len(b); i++ {
		b[i] = byte(number*31 + i*7 + i>>8)
	}
	binary.BigEndian.PutUint32(b[ethernet.HeaderSize:], uint32(number))
}

// lengthOf is the length of frame number: 60 to 1514 bytes, in no regular order.
func lengthOf(number int) int { return 60 + number*389%1455 }

// send sends frames first to first+count-1, as many as there is room for, and returns how
// many it has sent.
func send(t testing.TB, q ethernet.Queue, first, count int) int {
	t.Helper()
	frames := make([]ethernet.Frame, count)
	n := q.Cache().Alloc(frames)
	for i := range n {
		frames[i].Length = uint16(lengthOf(first + i))
		fill(q.Cache().Pool().Bytes(frames[i]), first+i)
	}
	sent, err := q.Send(frames[:n])
	if err != nil {
		t.Fatal(err)
	}
	q.Cache().Free(frames[sent:n])
	return sent
}

// receive receives frames and checks that they are number first and those that follow. It
// returns how many have come.
func receive(t testing.TB, q ethernet.Queue, first int) int {
	t.Helper()
	frames := make([]ethernet.Frame, 32)
	n, err := q.Receive(frames)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 1514)
	for i, f := range frames[:n] {
		want := want[:lengthOf(first+i)]
		fill(want, first+i)
		if got := q.Cache().Pool().Bytes(f); !bytes.Equal(got, want) {
			t.Fatalf("frame %d: %d bytes differ from those sent, %d", first+i, len(got), len(want))
		}
	}
	q.Cache().Free(frames[:n])
	return n
}

// patiencePerFrame is how much longer exchange may take for each frame: QEMU moves 5,000 a second at
// least.
const patiencePerFrame = 200 * time.Microsecond

// exchange sends count frames from one queue to another, at most window at a time.
func exchange(t testing.TB, from, to ethernet.Queue, count, window int) {
	t.Helper()
	sent, received := 0, 0
	for end := time.Now().Add(patience + time.Duration(count)*patiencePerFrame); received < count; {
		sent += send(t, from, sent, min(32, count-sent, window-(sent-received)))
		n := receive(t, to, received)
		received += n
		if n == 0 {
			if err := to.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if time.Now().After(end) {
			t.Fatalf("%d frames were sent, %d have come", sent, received)
		}
	}
}
