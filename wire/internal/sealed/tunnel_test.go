package sealed_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

func TestFramesArrive(t *testing.T) {
	n := newNetwork(t)
	a, b := n.start(1, "a", sealed.Limits{}, 2), n.start(2, "a", sealed.Limits{})
	n.converse(a, b)
	for size := range 1500 {
		f := bytes.Repeat([]byte{byte(size)}, size+1)
		a.got, b.got = nil, nil
		a.send(2, f)
		b.send(1, f)
		n.settle()
		must.Hold(t, len(a.got) == 1 && len(b.got) == 1 && bytes.Equal(a.got[0], f) && bytes.Equal(b.got[0], f), "%d bytes do not arrive", len(f))
	}
	for _, e := range []*end{a, b} {
		if c := e.tunnel.Stats(); c.Sessions != 1 || c.Forged+c.Replayed+c.Stale+c.Plain+c.Malformed+c.BadHandshakes != 0 {
			t.Errorf("counts %+v", c)
		}
	}
	// A frame cannot be read on the way.
	secret := bytes.Repeat([]byte("secret"), 10)
	n.man = func(p parcel) []parcel {
		should.Be(t, bytes.Contains(p.bytes, []byte("secret")), false, "a frame is readable")
		return []parcel{p}
	}
	a.send(2, secret)
	n.settle()
}

// TestSimultaneousStart: both say hello at the same time, again and again.
func TestSimultaneousStart(t *testing.T) {
	n := newNetwork(t)
	for range 20 {
		a, b := n.start(1, "a", sealed.Limits{}, 2), n.start(2, "a", sealed.Limits{}, 1)
		a.send(2, frame(1, 0))
		b.send(1, frame(2, 0))
		n.pass(100 * time.Millisecond)
		n.converse(a, b)
		n.pass(30 * time.Second)
		n.converse(a, b)
	}
}

// TestRestart: either end starts anew, and nobody tells the other.
func TestRestart(t *testing.T) {
	n := newNetwork(t)
	a, b := n.start(1, "a", sealed.Limits{}, 2), n.start(2, "a", sealed.Limits{})
	n.converse(a, b)
	for range 5 {
		a = n.start(1, "a", sealed.Limits{}, 2)
		n.converse(a, b)
		// Nothing that b knows is new, so a has to find out.
		b = n.start(2, "a", sealed.Limits{})
		n.converse(a, b)
	}
	if s := a.tunnel.Sessions(); s > 1+sealed.MaxSessions {
		t.Errorf("%d sessions are remembered", s)
	}
}

func TestOtherKey(t *testing.T) {
	n := newNetwork(t)
	a, b := n.start(1, "a", sealed.Limits{}, 2), n.start(2, "b", sealed.Limits{}, 1)
	hello := 0
	n.man = func(p parcel) []parcel {
		hello++
		return []parcel{p}
	}
	for range 100 {
		a.send(2, frame(1, 0))
		b.send(1, frame(2, 0))
		n.pass(20 * time.Millisecond)
	}
	must.Be(t, len(a.got)+len(b.got), 0, "a frame was delivered")
	ca, cb := a.tunnel.Stats(), b.tunnel.Stats()
	should.Hold(t, ca.BadHandshakes != 0 && cb.BadHandshakes != 0 && ca.Sessions+cb.Sessions == 0 && ca.Unsent == 100, "counts %+v, %+v", ca, cb)
	should.Be(t, hello > 30, false, "%d hellos in 2 s", hello)
	n.way, hello = nil, 0
	n.pass(time.Minute)
	should.Be(t, hello > 2, false, "%d hellos though nobody sends frames", hello)
}

// TestRenewal: sessions follow each other while frames pass, and none is lost.
func TestRenewal(t *testing.T) {
	for name, l := range map[string]sealed.Limits{"frames": {Frames: 8}, "age": {Age: 2 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t)
			a, b := n.start(1, "a", l, 2), n.start(2, "a", l)
			n.converse(a, b)
			a.got, b.got = nil, nil
			const frames = 1000
			for i := range uint64(frames) {
				a.send(2, frame(1, i))
				b.send(1, frame(2, i))
				n.pass(10 * time.Millisecond)
			}
			for _, e := range []*end{a, b} {
				must.Be(t, len(e.got) != frames, false, "%d frames of %d arrived: %+v", len(e.got), frames, e.tunnel.Stats())
				if c := e.tunnel.Stats(); c.Sessions < 4 {
					t.Errorf("%d sessions", c.Sessions)
				}
				if s := e.tunnel.Sessions(); s > 1+sealed.MaxSessions {
					t.Errorf("%d sessions are remembered", s)
				}
			}
		})
	}
}

// TestNothingIsSentUnderAUsedUpKey: without an answer to the hello frames are lost.
func TestNothingIsSentUnderAUsedUpKey(t *testing.T) {
	n := newNetwork(t)
	a, b := n.start(1, "a", sealed.Limits{Frames: 8}, 2), n.start(2, "a", sealed.Limits{Frames: 8})
	n.converse(a, b)
	n.man = func(p parcel) []parcel {
		if _, ok := sealed.FrameSize(p.bytes); ok {
			return []parcel{p}
		}
		return nil
	}
	b.got = nil
	for range 100 {
		a.send(2, frame(1, 0))
	}
	n.settle()
	should.Hold(t, len(b.got) <= 16 && a.tunnel.Stats().Unsent >= 84, "%d frames under one key, %+v", len(b.got), a.tunnel.Stats())
	n.man = nil
	n.converse(a, b)
}

// TestOneWay: an end that only hears says that it lives, so that the other does not
// begin one session after the other; and they do not go on for ever about that.
func TestOneWay(t *testing.T) {
	n := newNetwork(t)
	a, b := n.start(1, "a", sealed.Limits{}, 2), n.start(2, "a", sealed.Limits{})
	n.converse(a, b)
	for range 300 {
		a.send(2, frame(1, 0))
		n.pass(100 * time.Millisecond)
	}
	should.Be(t, a.tunnel.Stats().Sessions, 1, "sessions")
	n.pass(5 * time.Second)
	datagrams := 0
	n.man = func(p parcel) []parcel {
		datagrams++
		return []parcel{p}
	}
	n.pass(time.Minute)
	should.Be(t, datagrams > 0, false, "%d datagrams in a minute in which nobody sends", datagrams)
}

// TestBounds: neither replayed hellos nor peers without end fill the memory.
func TestBounds(t *testing.T) {
	n := newNetwork(t)
	b := n.start(2, "a", sealed.Limits{})
	var hellos []parcel
	n.man = func(p parcel) []parcel {
		if p.to == b.address {
			hellos = append(hellos, p)
		}
		return []parcel{p}
	}
	for range sealed.MaxUnconfirmed + 20 {
		a := n.start(1, "a", sealed.Limits{}, 2)
		a.send(2, frame(1, 0))
		n.way = n.way[:1]
		n.settle()
	}
	for i := range 20 {
		for _, p := range hellos {
			p.from = address(byte(10 + i))
			b.take(p.bytes, p.from)
		}
	}
	n.way = nil
	if s, l := b.tunnel.Sessions(), b.tunnel.Links(); s > sealed.MaxUnconfirmed+sealed.MaxSessions || l > 1 {
		t.Errorf("%d sessions and %d links from replayed hellos", s, l)
	}
	n.man = nil
	n.converse(n.start(1, "a", sealed.Limits{}, 2), b)
}

// TestAnotherAddress: an end that gets another address, as behind a NAT, begins a session from there.
func TestAnotherAddress(t *testing.T) {
	n := newNetwork(t)
	a, b := n.start(1, "a", sealed.Limits{}, 2), n.start(2, "a", sealed.Limits{})
	n.converse(a, b)
	delete(n.ends, a.address)
	a.address = address(7)
	n.ends[a.address] = a
	n.converse(a, b)
	if s := b.tunnel.Sessions(); s > 2 {
		t.Errorf("%d sessions are remembered", s)
	}
}

// TestForgedReplies: whatever replies a third host makes up, a session begins once it has stopped.
func TestForgedReplies(t *testing.T) {
	n := newNetwork(t)
	a, b := n.start(1, "a", sealed.Limits{}, 2), n.start(2, "a", sealed.Limits{})
	n.man = func(p parcel) []parcel {
		if p.to != a.address {
			return []parcel{p}
		}
		zero := slices.Clone(p.bytes) // a public key that gives no secret
		clear(zero[16:])
		other := slices.Clone(p.bytes)
		other[20] ^= 1
		return []parcel{{p.from, p.to, zero}, {p.from, p.to, other}}
	}
	for range 10 {
		a.send(2, frame(1, 0))
		n.pass(100 * time.Millisecond)
	}
	if c := a.tunnel.Stats(); c.Sessions != 0 || c.BadHandshakes == 0 {
		t.Errorf("counts %+v", c)
	}
	n.man = nil
	n.converse(a, b)
}
