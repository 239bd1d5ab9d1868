package mqnic_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/fakemqnic"
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/mqnic"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience is far more than anything here takes; soon is what the device may take in tests in which
// it takes for ever.
const (
	patience = 20 * time.Second
	soon     = 40 * time.Millisecond
)

// quiet keeps what the tests provoke out of their output.
var quiet = slog.New(slog.DiscardHandler)

func contextFor(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newFake makes a device, and at the end of the test looks at what it has seen.
func newFake(t testing.TB, o fakemqnic.Options) *fakemqnic.Device {
	t.Helper()
	d, err := fakemqnic.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !d.Closed() {
			t.Error("the device was not closed")
		}
		l := d.Log()
		for _, s := range l.Strays {
			t.Errorf("stray access: %s", s)
		}
		if l.LeftDMA > 0 && d.UnmapFails == nil && d.ConfigFails == nil || l.LeftVectors > 0 {
			t.Errorf("%d DMA mappings and %d vectors are left", l.LeftDMA, l.LeftVectors)
		}
		d.Close()
	})
	return d
}

// config is the least that Open needs; a pool is made if there is none.
func config(t testing.TB, c ethernet.Options) ethernet.Options {
	t.Helper()
	if c.Pool == nil {
		c.Pool = porttest.NewPool(t, ethernet.PoolOptions{})
	}
	if c.MAC == (ethernet.MAC{}) {
		c.MAC = porttest.Own
	}
	c.Logger = quiet
	if c.Timeout == 0 {
		c.Timeout = patience
	}
	return c
}

// open opens a device and closes it at the end of the test.
func open(t testing.TB, d *fakemqnic.Device, c ethernet.Options) ethernet.Port {
	t.Helper()
	p, err := ethernet.New(contextFor(t), d, config(t, c))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// nic is a fake for the suite.
type nic struct{ *fakemqnic.Device }

func (n nic) Arrive(b []byte) bool { return n.Device.Arrive(0, b) }

func (n nic) Raise() { n.With(func() { n.Interrupt(0) }) }

func (n nic) Sends(f func([]byte)) {
	n.With(func() { n.OnSend = func(s fakemqnic.Sent) { f(s.Bytes) } })
}

// StandStill has the device miss the doorbells of its transmit queues.
func (n nic) StandStill() (end func()) {
	still := true
	n.With(func() {
		n.OnWrite = func(offset uint64, v uint32) bool {
			return still && v>>16 == 0x8080 && v&0xffff != 0 && offset >= n.TX(0, 0) && offset < n.RX(0, 0)
		}
	})
	return func() { n.With(func() { still = false }) }
}

func TestSuite(t *testing.T) {
	porttest.Suite(t, func(t testing.TB) porttest.NIC { return nic{newFake(t, fakemqnic.Options{})} })
}
