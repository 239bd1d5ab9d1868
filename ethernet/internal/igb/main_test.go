package igb_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/fakeigb"
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/igb"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// patience is far more than anything here takes; what waits longer never ends.
const patience = 20 * time.Second

// quiet keeps what the tests provoke out of their output.
var quiet = slog.New(slog.DiscardHandler)

func contextFor(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// newFake makes a device, and at the end of the test looks at what it has seen.
func newFake(t testing.TB, o fakeigb.Options) *fakeigb.Device {
	t.Helper()
	d, err := fakeigb.New(o)
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
	c.Logger = quiet
	if c.Timeout == 0 {
		c.Timeout = patience
	}
	return c
}

// open opens a device and closes it at the end of the test. Then all buffers are back in
// the pool but those that the test has kept.
func open(t testing.TB, d *fakeigb.Device, c ethernet.Options) ethernet.Port {
	t.Helper()
	c = config(t, c)
	p, err := ethernet.New(contextFor(t), d, c)
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

// send sends one frame and fails the test if it is not taken.
func send(t testing.TB, p ethernet.Port, queue int, data []byte, change func(f *ethernet.Frame)) {
	t.Helper()
	if n, err := porttest.TrySend(p.Queue(queue), data, change); n != 1 || err != nil {
		t.Fatalf("sent %d, %v", n, err)
	}
}
