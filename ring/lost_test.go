package ring_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// TestLost: a server whose NIC goes without a word ends the calls that are under way, and the
// program whose NIC it was has an error too.
func TestLost(t *testing.T) {
	if testing.Short() {
		t.Skip("a NIC knows after 3 s that its peer is dead")
	}
	leaktest.Check(t)
	// A wire that might lose frames: of one that cannot, the end is seen at once.
	first, second, err := emulator.Pair(emulator.PairOptions{Faults: wire.FaultOptions{}})
	if err != nil {
		t.Fatal(err)
	}
	open := func(d *emulator.Device) *via.NIC {
		nic, err := via.OpenDevice(conform.Context(t), d, via.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nic.Close() }) // one of them is gone
		return nic
	}
	a, b := open(first), open(second)
	options := ring.Options{Reliability: via.ReliableDelivery}
	l, err := ring.Listen(b, "lost", options)
	if err != nil {
		t.Fatal(err)
	}
	x, err := ring.Dial(conform.Context(t), a, l.Address().String(), options)
	if err != nil {
		t.Fatal(err)
	}
	y, err := l.Accept(conform.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	asked, served := make(chan bool, 2), make(chan error, 1)
	go func() {
		served <- ring.Serve(conform.Context(t), y, func(*ring.Request) { asked <- true })
	}()
	c := newCaller(t, x)
	into := alloc(t, a, 4096)
	errs := make(chan error, 2)
	go func() {
		_, err := c.Call(conform.Context(t), nil, ring.Frame{}, ring.Frame{Memory: into, Length: 4096})
		errs <- err
	}()
	if err := c.Start(nil, ring.Frame{}, ring.Frame{}, time.Now().Add(conform.Timeout), func(_ ring.Reply, err error) { errs <- err }); err != nil {
		t.Fatal(err)
	}
	<-asked
	<-asked
	second.Remove()
	if err := <-served; !errors.Is(err, via.ErrDevice) {
		t.Errorf("Serve on a NIC that is gone: %v", err)
	}
	for range 2 {
		if err := <-errs; !errors.Is(err, ring.ErrPeerGone) || !errors.Is(err, via.ErrPeerLost) {
			t.Errorf("a call to a server that is gone: %v", err)
		}
	}
	if _, err := c.Call(conform.Context(t), nil, ring.Frame{}, ring.Frame{}); !errors.Is(err, ring.ErrPeerGone) {
		t.Error(err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	if err := y.Close(); err == nil {
		t.Error("a ring on a NIC that is gone was closed in order")
	}
}
