package ring_test

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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
	first, second := must.Two(emulator.Pair(emulator.PairOptions{Faults: wire.FaultOptions{}}))(t)
	open := func(d *emulator.Device) *via.NIC {
		nic := must.Get(via.OpenDevice(conform.Context(t), d, via.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
		t.Cleanup(func() { _ = nic.Close() }) // one of them is gone
		return nic
	}
	a, b := open(first), open(second)
	options := ring.Options{Reliability: via.ReliableDelivery}
	l := must.Get(ring.Listen(b, "lost", options))(t)
	x := must.Get(ring.Dial(conform.Context(t), a, l.Address().String(), options))(t)
	y := must.Get(l.Accept(conform.Context(t)))(t)
	should.OK(t, l.Close())
	asked, served := make(chan bool, 2), make(chan error, 1)
	go func() {
		served <- ring.Serve(conform.Context(t), y, func(*ring.Request) { asked <- true })
	}()
	c := newCaller(t, x)
	into := alloc(t, a, 4096)
	errs := make(chan error, 2)
	for _, place := range []ring.Frame{{Memory: into, Length: 4096}, {}} {
		go func() {
			_, err := c.Call(conform.Context(t), nil, ring.Frame{}, place)
			errs <- err
		}()
	}
	<-asked
	<-asked
	second.Remove()
	should.Fail(t, <-served, via.ErrDevice, "Serve on a NIC that is gone")
	for range 2 {
		if err := <-errs; !errors.Is(err, ring.ErrPeerGone) || !errors.Is(err, via.ErrPeerLost) {
			t.Errorf("a call to a server that is gone: %v", err)
		}
	}
	should.Refuse(c.Call(conform.Context(t), nil, ring.Frame{}, ring.Frame{}))(t, ring.ErrPeerGone)
	should.OK(t, x.Close())
	if err := y.Close(); err == nil {
		t.Error("a ring on a NIC that is gone was closed in order")
	}
}
