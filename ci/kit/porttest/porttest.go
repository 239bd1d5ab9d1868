// Package porttest holds what the tests of several drivers of ports share: pools, frames that
// are told by their numbers, and what benchmarks report.
package porttest

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// NewPool makes a pool that is closed with the test, which fails if buffers are missing then.
func NewPool(t testing.TB, c ethernet.PoolOptions) *ethernet.Pool {
	t.Helper()
	p := must.Get(ethernet.NewPool(c))(t)
	t.Cleanup(func() {
		if n := p.Free(); n != p.Options().Buffers && !t.Failed() {
			t.Errorf("%d of %d buffers are back", n, p.Options().Buffers)
		}
	})
	CloseAtEnd(t, p)
	return p
}

// Fill makes the bytes of a frame from its number, which is in them.
func Fill(b []byte, number int) {
	copy(b, []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 0xaa, 0x88, 0xb5})
	for i := ethernet.HeaderSize; i < len(b); i++ {
		b[i] = byte(number*31 + i*7 + i>>8)
	}
	binary.BigEndian.PutUint32(b[ethernet.HeaderSize:], uint32(number))
}

// Length is the length of frame number: 60 to 1514 bytes, in no regular order.
func Length(number int) int { return 60 + number*389%1455 }

// Send sends frames first to first+count-1, as many as there is room for, and returns how
// many it has sent.
func Send(t testing.TB, q ethernet.Queue, first, count int) int {
	t.Helper()
	frames := make([]ethernet.Frame, count)
	n := q.Cache().Alloc(frames)
	for i := range n {
		frames[i].Length = uint16(Length(first + i))
		Fill(q.Cache().Pool().Bytes(frames[i]), first+i)
	}
	sent := must.Get(q.Send(frames[:n]))(t)
	q.Cache().Free(frames[sent:n])
	return sent
}

// Receive receives frames and checks that they are number first and those that follow. It
// returns how many have come.
func Receive(t testing.TB, q ethernet.Queue, first int) int {
	t.Helper()
	frames := make([]ethernet.Frame, 32)
	n := must.Get(q.Receive(frames))(t)
	want := make([]byte, 1514)
	for i, f := range frames[:n] {
		want := want[:Length(first+i)]
		Fill(want, first+i)
		must.Same(t, q.Cache().Pool().Bytes(f), want, "frame %d: bytes differ from those sent", first+i)
	}
	q.Cache().Free(frames[:n])
	return n
}

// patiencePerFrame is added to the time limit of Exchange for each frame: QEMU moves 5,000 a second at
// least.
const patiencePerFrame = 200 * time.Microsecond

// Exchange sends count frames from one queue to another, at most window at a time.
func Exchange(t testing.TB, from, to ethernet.Queue, count, window int) {
	t.Helper()
	sent, received := 0, 0
	for end := time.Now().Add(timeout + time.Duration(count)*patiencePerFrame); received < count; {
		sent += Send(t, from, sent, min(32, count-sent, window-(sent-received)))
		n := Receive(t, to, received)
		received += n
		if n == 0 {
			must.OK(t, to.Wait(t.Context()))
			must.Get(from.Unsent())(t)
		}
		must.Hold(t, !time.Now().After(end), "%d frames were sent, %d have come", sent, received)
	}
}
