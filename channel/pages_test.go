package channel_test

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/statstest"
	"github.com/trapeze-nic/trapeze/via"
)

// TestPages: what is put is what a word further on is read, wherever it begins.
func TestPages(t *testing.T) {
	a, _ := openBoth(t, "")
	p := must.Get(channel.NewPages(contextFor(t), a, 4096, via.MemoryAttributes{}))(t)
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
		must.Be(r, stop, (start+words)%p.Words(), "%d bytes from %d end", len(data), start)
		must.Be(r, p.Stats().Copied-before, uint64(len(data)), "%d bytes were copied, and counted", len(data))
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
	should.OK(t, p.Close(contextFor(t)))
	if p.Bytes() != nil || p.Page(1) != nil || p.Put(3, make([]byte, 8)) != 3 || p.Put(0, make([]byte, 8)) != 0 {
		t.Error("there are pages after Close")
	}
	should.Be(t, p.Stats().Copied, before, "what was refused counts as copied")
}

// TestView: a message is seen where it lies, in one part or two; only Read counts as a copy.
func TestView(t *testing.T) {
	x, y := openPair(t, "", channel.Options{})
	size, parted := 1160, 0
	for i := range 60 {
		want := random(size, uint64(i))
		must.OK(t, x.Send(channel.Low, 0, x.SendPages().Put(0, want)))
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
		must.Be(t, y.RecvPages().Stats().Copied, 0, "bytes were copied")
		must.OK(t, y.Release(m))
	}
	if parted == 0 {
		t.Error("no message ran over the end of the double page")
	}
	should.Be(t, x.SendPages().Stats().Copied, uint64(60*size), "%d bytes were put, and counted", 60*size)
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
	must.OK(t, y.Close())
	if _, _, err := y.View(m); !errors.Is(err, net.ErrClosed) || y.Read(m, make([]byte, 8)) != 0 {
		t.Errorf("a view of a closed channel: %v", err)
	}
	_, spaced := openPair(t, "", channel.Options{Spaced: true})
	if _, _, err := spaced.View(m); !errors.Is(err, via.ErrNotSupported) {
		t.Errorf("a view of a spaced channel: %v", err)
	}
}

func TestStats(t *testing.T) { statstest.Check(t, channel.PagesStats{}) }
