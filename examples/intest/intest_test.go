// Package intest shows how a program that uses NICs is tested without any: with
// two emulated ones on a wire in memory.
package intest_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// pair returns two NICs on one wire.
func pair(t *testing.T) (a, b *via.NIC) {
	da, db, err := emulator.Pair(emulator.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, da), open(t, db)
}

func open(t *testing.T, device vfio.Device) *via.NIC {
	n, err := via.OpenDevice(t.Context(), device, via.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func TestMessage(t *testing.T) {
	a, b := pair(t)
	l, err := via.Listen(b, "test", via.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	from, err := via.Dial(t.Context(), a, l.Address().String(), via.ConnOptions{})
	if err != nil {
		t.Fatal(err)
	}
	to, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := from.Send(t.Context(), []byte("sent without hardware")); err != nil {
		t.Fatal(err)
	}
	got, err := to.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != "sent without hardware" {
		t.Errorf("received %q", got)
	}
}
