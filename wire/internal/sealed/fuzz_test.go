package sealed_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

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
		if len(a.got)+len(b.got) != 0 {
			t.Fatal("a frame was delivered")
		}
		a.send(2, frame(1, 1))
		b.send(1, frame(2, 1))
		n.settle()
		if len(a.got) != 1 || len(b.got) != 1 {
			t.Fatal("the session does not work any more")
		}
		if b.tunnel.Links() != 1 || a.tunnel.Links() != 2 {
			t.Error("a link was made")
		}
	})
}
