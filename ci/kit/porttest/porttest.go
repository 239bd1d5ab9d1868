// Package porttest holds what the tests of several drivers of ports share: pools, frames that
// are told by their numbers, and what benchmarks report.
package porttest

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// NewPool makes a pool that is closed with the test.
func NewPool(t testing.TB, c ethernet.PoolOptions) *ethernet.Pool {
	t.Helper()
	p, err := ethernet.NewPool(c)
	if err != nil {
		t.Fatal(err)
	}
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
	sent, err := q.Send(frames[:n])
	if err != nil {
		t.Fatal(err)
	}
	q.Cache().Free(frames[sent:n])
	return sent
}

// Receive receives frames and checks that they are number first and those that follow. It
// returns how many have come.
func Receive(t testing.TB, q ethernet.Queue, first int) int {
	t.Helper()
	frames := make([]ethernet.Frame, 32)
	n, err := q.Receive(frames)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 1514)
	for i, f := range frames[:n] {
		want := want[:Length(first+i)]
		Fill(want, first+i)
		if got := q.Cache().Pool().Bytes(f); !bytes.Equal(got, want) {
			t.Fatalf("frame %d: %d bytes differ from those sent, %d", first+i, len(got), len(want))
		}
	}
	q.Cache().Free(frames[:n])
	return n
}
