package nic_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/cable"
	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ci/kit/wiretest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/nic"
)

func TestBadOptions(t *testing.T) {
	for _, tt := range []struct {
		o    nic.Options
		want error
		says string
	}{
		{nic.Options{Address: "cable:x", MTU: datasheet.MinMTU - 1}, wire.ErrOptions, "160..9014"},
		{nic.Options{Address: "cable:x", MTU: nic.MaxMTU + 1}, wire.ErrOptions, "160..9014"},
		{nic.Options{Address: "cable:x", MTU: -1}, wire.ErrOptions, "160..9014"},
		{nic.Options{Address: "cable:x", MAC: datasheet.MAC{1}}, wire.ErrOptions, "group"},
		{nic.Options{Address: ""}, vfio.ErrBadAddress, "scheme"},
		{nic.Options{Address: "carrier-pigeon:x"}, vfio.ErrUnknownScheme, "ethernet/drivers, and vfio/kernel"},
	} {
		p, err := nic.New(t.Context(), tt.o)
		if p != nil || !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: %v, want one that says %q", tt.o, err, tt.says)
		}
	}
}

// TestStation: the station is the NIC's address, or the one that is asked for.
func TestStation(t *testing.T) {
	address := cable.Scheme + ":" + t.Name()
	if a := open(t, nic.Options{Address: address}); a.MAC() != (datasheet.MAC{2, 'c', 'a', 'b', 'l', 'A'}) || a.MTU() != 1514 {
		t.Errorf("station %v, MTU %d", a.MAC(), a.MTU())
	}
	want := datasheet.MAC{2, 0, 0, 0, 0, 9}
	if b := open(t, nic.Options{Address: address, MAC: want, MTU: nic.MaxMTU}); b.MAC() != want || b.MTU() != 9014 {
		t.Errorf("station %v, MTU %d", b.MAC(), b.MTU())
	}
}

// TestFlushIsOneSend: what is committed before a Flush is given to the NIC at once.
func TestFlushIsOneSend(t *testing.T) {
	a, b := pair(t, nic.Options{})
	end := cable.End(t.Name(), 0)
	for round := range 5 {
		before := end.Sends()
		for i := range 64 {
			must.Be(t, put(a, byte(i), 64+i), true, "no room")
		}
		a.Flush()
		should.Be(t, end.Sends()-before, 1, "round %d: bursts", round)
		for i := range 64 {
			get(t, b, byte(i), 64+i)
		}
	}
	if s := a.Stats(); s.NIC.Queues[0].SentFrames != 5*64 || s.Lost != 0 || s.Bad != 0 || s.Err != nil {
		t.Errorf("%+v", s)
	}
}

// TestFullRing: frames for which the NIC has no room go out later, in order, without a
// Flush if whoever sends only receives, and the frame that is reserved stays what it is.
func TestFullRing(t *testing.T) {
	a, b := pair(t, nic.Options{})
	end := cable.End(t.Name(), 0)
	end.SetFull(true)
	n := 0
	for put(a, byte(n), 64+n) {
		if n++; n > 1000 {
			t.Fatal("there is always room")
		}
		if n%7 == 0 {
			a.Flush()
		}
	}
	should.Be(t, a.Drained(), false, "all was sent")
	end.SetFull(false)
	waittest.Until(t, "there is room", func() bool { return put(a, byte(n), 64+n) })
	held := a.Reserve(100)
	for i := range held {
		held[i] = 255
	}
	end.SetFull(true)
	a.Flush()
	end.SetFull(false)
	a.Receive()
	a.Commit()
	a.Flush()
	for i := range n + 1 {
		get(t, b, byte(i), 64+i)
	}
	get(t, b, 255, 100)
	waittest.Until(t, "all is sent", a.Drained)
}

// TestFullRingWakes: whoever sleeps with frames that the NIC had no room for is woken.
func TestFullRingWakes(t *testing.T) {
	a, b := pair(t, nic.Options{})
	var woken atomic.Int32
	a.SetWake(func() { woken.Add(1) })
	end := cable.End(t.Name(), 0)
	end.SetFull(true)
	put(a, 1, 64)
	a.Flush()
	waittest.Until(t, "the sender is woken", func() bool { return woken.Load() > 3 })
	end.SetFull(false)
	a.Receive()
	get(t, b, 1, 64)
}

// TestWakes: frames wake whoever has looked in vain for a while.
func TestWakes(t *testing.T) {
	a, b := pair(t, nic.Options{})
	wake, woken := waittest.Bell()
	b.SetWake(wake)
	for i := range 20 {
		put(a, byte(i), 200)
		a.Flush()
		<-woken
		get(t, b, byte(i), 200)
		for range 600 {
			b.Receive()
		}
	}
	if n := b.Stats().Wakes; n < 20 {
		t.Errorf("woken %d times", n)
	}
	b.SetWake(nil)
}

// TestFailure: a NIC that fails takes the link down, and is restarted until it works.
func TestFailure(t *testing.T) {
	a, b := pair(t, nic.Options{})
	var changes atomic.Int32
	a.OnLink(func() { changes.Add(1) })
	broken := errors.New("a fuse has blown")
	for round := range uint64(2) {
		cable.End(t.Name(), 0).Fail(broken, 2)
		waittest.Until(t, "the link is down", func() bool { a.Receive(); return !a.LinkUp() && changes.Load() > 0 })
		changes.Store(0)
		should.Fail(t, a.Stats().Err, broken, "failed because")
		lost := a.Stats().Lost
		should.Be(t, put(a, 1, 64), true, "no room for a frame that is lost")
		a.Flush()
		should.Be(t, a.Stats().Lost, lost+1, "frames lost, before %d", lost)
		waittest.Until(t, "the NIC works again", func() bool { return a.LinkUp() && changes.Load() > 0 })
		changes.Store(0)
		put(a, 2, 64)
		a.Flush()
		get(t, b, 2, 64)
		if s := a.Stats(); s.Restarts != round+1 || s.Err != nil {
			t.Errorf("%+v", s)
		}
	}
}

// TestGone: a PCI function that is gone is given back, as Linux waits for that.
func TestGone(t *testing.T) {
	p := open(t, nic.Options{Address: "pci:0000:00:00.0"})
	g := gone.Load()
	waittest.Until(t, "it is closed", func() bool { p.Receive(); return g.isClosed() })
	if err := p.Stats().Err; p.LinkUp() || !errors.Is(err, ethernet.ErrDeviceGone) {
		t.Errorf("link up: %v, error %v", p.LinkUp(), err)
	}
	if put(p, 1, 64) {
		p.Flush()
	}
	should.Hold(t, p.Receive() == nil && p.Stats().Lost == 1, "%+v", p.Stats())
}

// TestFailureWhileSending: the frames of a burst that the NIC refuses are lost, and
// nothing else.
func TestFailureWhileSending(t *testing.T) {
	a, b := pair(t, nic.Options{})
	put(a, 1, 64)
	put(a, 2, 64)
	cable.End(t.Name(), 0).Fail(errors.New("x"), 0)
	a.Flush()
	should.Be(t, a.Stats().Lost, 2, "frames lost")
	waittest.Until(t, "the NIC works again", a.LinkUp)
	put(a, 3, 64)
	a.Flush()
	get(t, b, 3, 64)
}

// TestLink: both ends notice that a link goes and comes, and frames are lost meanwhile.
func TestLink(t *testing.T) {
	a, b := pair(t, nic.Options{})
	var changes atomic.Int32
	b.OnLink(func() { changes.Add(1) })
	for i := range int32(3) {
		cable.End(t.Name(), 0).SetLink(false)
		waittest.Until(t, "both links are down", func() bool { return !a.LinkUp() && !b.LinkUp() && changes.Load() == 2*i+1 })
		put(a, 1, 64)
		a.Flush()
		cable.End(t.Name(), 0).SetLink(true)
		waittest.Until(t, "both links are up", func() bool { return a.LinkUp() && b.LinkUp() && changes.Load() == 2*i+2 })
		put(a, 2, 64)
		a.Flush()
		get(t, b, 2, 64)
	}
	should.Be(t, a.Stats().Lost, 3, "frames lost")
}

// TestCloseKeepsFrames: what was reserved and received can be used after Close, and is
// given back by the next calls.
func TestCloseKeepsFrames(t *testing.T) {
	before := leaktest.Files(t)
	for range 3 {
		a, b := pair(t, nic.Options{})
		put(a, 7, 100)
		put(a, 8, 100)
		a.Flush()
		in := wiretest.Await(t, b)
		out := b.Reserve(1514)
		for _, p := range []*nic.Port{a, b} {
			should.OK(t, p.Close())
			should.Be(t, p.LinkUp(), false, "the link of a closed port is up")
		}
		for i := range out {
			out[i] = in[i%100]
		}
		b.Commit()
		b.Flush()
		b.Release()
		should.Be(t, b.Receive() != nil || b.Reserve(64) != nil, false, "frames pass a closed port")
		should.Be(t, b.Stats().Lost != 1, false, "%+v", b.Stats())
		a.Reserve(0)
		a.Receive()
		must.Be(t, leaktest.Files(t), before, "file descriptors before, after")
	}
}

// TestWrongNIC: a NIC that cannot be a wire's end is refused.
func TestWrongNIC(t *testing.T) {
	for what, want := range map[string]error{
		"no queue": ethernet.ErrProtocol, "no station": ethernet.ErrProtocol, "no link": errNothing, "not open": errNothing,
	} {
		p, err := nic.New(t.Context(), nic.Options{Address: "wrong:" + what})
		should.Hold(t, p == nil && errors.Is(err, want) && strings.Contains(err.Error(), "wrong:"+what), "%s: %v", what, err)
	}
	should.Be(t, wrongOpen.Load(), 0, "ports are still open")
}
