package port_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// device is a NIC that answers as a test wants it.
type device struct {
	rings                    int
	setup, restart, refuse   error
	look, trouble, renew     atomic.Pointer[error]
	released, renewed, again atomic.Int32
	filter                   port.Filter
}

func (d *device) Setup(_ context.Context, p *port.Port, info *ethernet.Info) error {
	info.MAC = ethernet.MAC{2, 0, 0, 0, 0, 1}
	for range d.rings {
		r := &ring{device: d}
		p.Add(r, &r.Queue)
	}
	return d.setup
}

func (d *device) Restart(context.Context) error { d.again.Add(1); return d.restart }
func (d *device) Release() error                { d.released.Add(1); return nil }
func (d *device) Hint(error) string             { return "a hint" }

func (d *device) Link(context.Context) (ethernet.Link, error) {
	return ethernet.Link{Up: true}, load(&d.look)
}

func (d *device) Look(context.Context) (bool, error) { return true, load(&d.look) }

func (d *device) Filter(_ context.Context, to, _ port.Filter) error {
	if d.refuse == nil {
		d.filter = to
	}
	return d.refuse
}

func (d *device) Count() (*ethernet.DeviceStats, error) { return nil, load(&d.look) }

// ring is a queue on which nothing arrives.
type ring struct {
	port.Queue
	device *device
}

func (*ring) Receive([]ethernet.Frame) (int, error) { return 0, nil }
func (*ring) Send([]ethernet.Frame) (int, error)    { return 0, nil }
func (*ring) Unsent() (int, error)                  { return 0, nil }
func (*ring) Ready() bool                           { return false }
func (*ring) Sleep(context.Context) (bool, error)   { return false, nil }
func (r *ring) Trouble(time.Time, bool) error       { return load(&r.device.trouble) }
func (r *ring) Renew(context.Context) error         { r.device.renewed.Add(1); return load(&r.device.renew) }
func load(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

func config(t *testing.T) ethernet.Options {
	t.Helper()
	return must.Get(ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{}), Timeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}.Check())(t)
}

func open(t *testing.T, d *device) *port.Port {
	t.Helper()
	p := must.Get(port.Open(t.Context(), d, ethernet.Info{Device: "fake:", Options: config(t)}))(t)
	t.Cleanup(func() {
		for range 2 {
			should.OK(t, p.Close())
		}
		should.Be(t, d.released.Load(), 1, "released times")
	})
	return p.(*port.Port)
}

// failure waits for the reason with which a port fails.
func failure(t *testing.T, p *port.Port) error {
	t.Helper()
	waittest.Until(t, "the port fails", func() bool {
		p.Poke()
		return p.Failed() != nil
	})
	return p.Failed()
}

var errTest = errors.New("as the test has it")

func TestSetupFails(t *testing.T) {
	d := &device{setup: errTest}
	_, err := port.Open(t.Context(), d, ethernet.Info{Device: "fake:", Options: config(t)})
	var e *ethernet.Error
	if !errors.As(err, &e) || e.Op != "open" || e.Device != "fake:" || e.Hint == "" || !errors.Is(err, errTest) || d.released.Load() != 1 {
		t.Errorf("%v, released %d times", err, d.released.Load())
	}
}

// TestLookFails: a port whose device fails answers everything with the reason, until Restart.
func TestLookFails(t *testing.T) {
	d := &device{rings: 1}
	p := open(t, d)
	err := fmt.Errorf("%w: as the test has it", ethernet.ErrDeviceGone)
	d.look.Store(&err)
	should.Fail(t, failure(t, p), ethernet.ErrDeviceGone)
	_, lerr := p.Link()
	for _, err := range []error{lerr, p.SetPromiscuous(true), p.SetMAC(ethernet.MAC{2}), p.Queue(0).Wait(t.Context())} {
		should.Fail(t, err, ethernet.ErrDeviceGone)
	}
	d.restart = errTest
	if err := p.Restart(t.Context()); !errors.Is(err, errTest) || !errors.Is(p.Failed(), errTest) {
		t.Errorf("%v, then %v", err, p.Failed())
	}
	d.restart = nil
	d.look.Store(nil)
	if err := p.Restart(t.Context()); err != nil || p.Failed() != nil || p.Stats().Restarts != 1 {
		t.Errorf("%v, %v, %+v", err, p.Failed(), p.Stats())
	}
}

// TestTrouble: a queue in trouble gets new rings, four times in a row at most.
func TestTrouble(t *testing.T) {
	d := &device{rings: 2}
	p := open(t, d)
	err := errTest
	d.trouble.Store(&err)
	got := failure(t, p)
	should.Hold(t, errors.Is(got, ethernet.ErrProtocol) && errors.Is(got, errTest), "%v", got)
	should.Be(t, p.Stats().Queues[0].Restarts, 4, "restarted times")
}

// TestRenewNotSupported: the whole device is restarted in place of a queue.
func TestRenewNotSupported(t *testing.T) {
	d := &device{rings: 1, restart: errTest}
	p := open(t, d)
	trouble, renew := errTest, error(ethernet.ErrNotSupported)
	d.renew.Store(&renew)
	d.trouble.Store(&trouble)
	if got := failure(t, p); !errors.Is(got, errTest) || d.again.Load() != 1 || p.Stats().Queues[0].Restarts != 0 {
		t.Errorf("%v, %d restarts", got, d.again.Load())
	}
}

// TestFilterRefused: a filter that is bad, or that the device refuses, leaves the old one.
func TestFilterRefused(t *testing.T) {
	d := &device{}
	p := open(t, d)
	group, station := ethernet.MAC{1}, ethernet.MAC{2, 0, 0, 0, 0, 2}
	for _, err := range []error{p.SetMAC(group), p.SetMAC(ethernet.MAC{}), p.SetMulticast([]ethernet.MAC{station}), p.SetVLANs([]uint16{4096})} {
		should.Fail(t, err, ethernet.ErrConfig)
	}
	err := p.SetMAC(station)
	should.Hold(t, err == nil && p.MAC() == station && d.filter.MAC == station, "%v: %v", err, p.MAC())
	d.refuse = ethernet.ErrNotSupported
	err = p.SetMAC(ethernet.MAC{2})
	should.Hold(t, errors.Is(err, ethernet.ErrNotSupported) && p.MAC() == station, "%v: %v", err, p.MAC())
}

// TestClosed: all answers but those of Counters and Close are net.ErrClosed.
func TestClosed(t *testing.T) {
	p := open(t, &device{rings: 1})
	must.OK(t, p.Close())
	_, lerr := p.Link()
	for _, err := range []error{lerr, p.SetPromiscuous(true), p.Queue(0).Wait(t.Context()), p.Restart(t.Context())} {
		should.Fail(t, err, net.ErrClosed)
	}
}
