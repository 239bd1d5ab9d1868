package channel_test

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/statstest"
	"github.com/trapeze-nic/trapeze/via"
)

// TestPages: what is put is what a word further on is read, wherever it begins.
func TestPages(t *testing.T) {
	a, _ := openBoth(t, "")
	p, err := channel.NewPages(contextFor(t), a, 4096, via.MemoryAttributes{})
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(r *rapid.T) {
		copy(p.Bytes(), bytes.Repeat([]byte{0xee}, len(p.Bytes())))
		before := p.Stats().Copied
		start := rapid.IntRange(0, p.Words()-1).Draw(r, "start")
		data := random(rapid.IntRange(1, len(p.Bytes())-channel.Word).Draw(r, "bytes"), 1)
		stop := p.Put(start, data)
		words := (len(data) + channel.Word - 1) / channel.Word
		want := append(bytes.Clone(data), make([]byte, words*channel.Word-len(data))...)
		for i := range p.Bytes() {
			at := (i - start*channel.Word + len(p.Bytes())) % len(p.Bytes())
			if at < len(want) && p.Bytes()[i] != want[at] || at >= len(want) && p.Bytes()[i] != 0xee {
				r.Fatalf("byte %d is %#x", i, p.Bytes()[i])
			}
		}
		if stop != (start+words)%p.Words() {
			r.Fatalf("%d bytes from %d end at %d", len(data), start, stop)
		}
		if n := p.Stats().Copied - before; n != uint64(len(data)) {
			r.Fatalf("%d bytes were copied, and %d counted", len(data), n)
		}
	})
	if p.Page(-1) != nil || p.Page(2) != nil {
		t.Error("there are more than two pages")
	}
	before := p.Stats().Copied
	for start, n := range map[int]int{-1: 8, p.Words(): 8, 0: len(p.Bytes()) - channel.Word + 1, 5: len(p.Bytes()), 7: 0} {
		copy(p.Bytes(), bytes.Repeat([]byte{0xee}, len(p.Bytes())))
		if stop := p.Put(start, make([]byte, n)); stop != start || bytes.Count(p.Bytes(), []byte{0xee}) != len(p.Bytes()) {
			t.Errorf("%d bytes put to word %d: %d", n, start, stop)
		}
	}
	if err := p.Close(contextFor(t)); err != nil {
		t.Error(err)
	}
	if p.Bytes() != nil || p.Page(1) != nil || p.Put(3, make([]byte, 8)) != 3 || p.Put(0, make([]byte, 8)) != 0 {
		t.Error("there are pages after Close")
	}
	if p.Stats().Copied != before {
		t.Error("what was refused counts as copied")
	}
}

// TestView: a message is seen where it lies, in one part or two; only Read counts as a copy.
func TestView(t *testing.T) {
	x, y := openPair(t, "", channel.Options{})
	size, parted := 1160, 0
	for i := range 60 {
		want := random(size, uint64(i))
		if err := x.Send(channel.Low, 0, x.SendPages().Put(0, want)); err != nil {
			t.Fatal(err)
		}
		m, err := y.Wait(contextFor(t))
		if err != nil || m.Err != nil {
			t.Fatal(m, err)
		}
		first, rest, err := y.View(m)
		if got := append(bytes.Clone(first), rest...); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("message %d: %d and %d bytes, %v", i, len(first), len(rest), err)
		}
		if &first[0] != &y.RecvPages().Bytes()[m.Start*channel.Word] || rest != nil && &rest[0] != &y.RecvPages().Bytes()[0] {
			t.Fatal("the message was copied")
		}
		if cap(first) > len(y.RecvPages().Bytes())-m.Start*channel.Word || cap(rest) != len(rest) {
			t.Error("there is room behind the message")
		}
		if rest != nil {
			parted++
		}
		if n := y.RecvPages().Stats().Copied; n != 0 {
			t.Fatalf("%d bytes were copied", n)
		}
		if err := y.Release(m); err != nil {
			t.Fatal(err)
		}
	}
	if parted == 0 {
		t.Error("no message ran over the end of the double page")
	}
	if n := x.SendPages().Stats().Copied; n != uint64(60*size) {
		t.Errorf("%d bytes were put, and %d counted", 60*size, n)
	}
	m := channel.PDU{Start: 1020, Length: 100}
	if n := y.Read(m, make([]byte, 50)); n != 50 || y.RecvPages().Stats().Copied != 50 {
		t.Errorf("%d bytes were read, %d counted", n, y.RecvPages().Stats().Copied)
	}
	// What Poll cannot have returned has no bytes.
	for _, m := range []channel.PDU{{Start: -1, Length: 8}, {Start: 1024, Length: 8}, {Start: 1, Length: -1}} {
		if first, rest, err := y.View(m); len(first)+len(rest) != 0 || err != nil || y.Read(m, make([]byte, 8)) != 0 {
			t.Errorf("%+v: %d and %d bytes, %v", m, len(first), len(rest), err)
		}
	}
	if err := y.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := y.View(m); !errors.Is(err, net.ErrClosed) || y.Read(m, make([]byte, 8)) != 0 {
		t.Errorf("a view of a closed channel: %v", err)
	}
	_, spaced := openPair(t, "", channel.Options{Spaced: true})
	if _, _, err := spaced.View(m); !errors.Is(err, via.ErrNotSupported) {
		t.Errorf("a view of a spaced channel: %v", err)
	}
}

func TestStats(t *testing.T) { statstest.Check(t, channel.PagesStats{}) }
