package sealed_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

// TestWindow compares the replay window with a set of all numbers.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w sealed.Window
		taken := map[uint64]bool{}
		next := uint64(0)
		for range rapid.IntRange(1, 400).Draw(t, "numbers") {
			var n uint64
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				n = next
			case 1:
				n = next + rapid.Uint64Range(0, 3*sealed.WindowSize).Draw(t, "ahead")
			default:
				n = next - min(next, rapid.Uint64Range(0, sealed.WindowSize+200).Draw(t, "behind"))
			}
			old := n+sealed.WindowSize < next
			if got, want := w.Take(n), !old && !taken[n]; got != want {
				t.Fatalf("number %d with %d next: %v, want %v", n, next, got, want)
			}
			if !old {
				taken[n] = true
				next = max(next, n+1)
			}
		}
	})
}

// FuzzDatagram throws datagrams at a tunnel that has a session, and at one that waits
// for a reply. The seeds are what ends with the same key have sent, so that their
// hellos are good ones.
func FuzzDatagram(f *testing.F) {
	f.Fuzz(func(t *testing.T, datagram []byte) {
		n := newNetwork(t)
		a, b := n.start(1, "a", sealed.Limits{}, 2, 3), n.start(2, "a", sealed.Limits{})
		n.converse(a, b)
		a.got, b.got = nil, nil
		a.send(3, frame(1, 0)) // nobody is there
		for _, from := range []*end{a, b} {
			b.take(datagram, from.address)
			a.take(datagram, from.address)
			a.take(datagram, address(3))
		}
		n.settle()
		must.Be(t, len(a.got)+len(b.got), 0, "a frame was delivered")
		a.send(2, frame(1, 1))
		b.send(1, frame(2, 1))
		n.settle()
		must.Be(t, len(a.got) != 1 || len(b.got) != 1, false, "the session does not work any more")
		should.Be(t, b.tunnel.Links() != 1 || a.tunnel.Links() != 2, false, "a link was made")
	})
}
