package mqnic_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakemqnic"
	"github.com/trapeze-nic/trapeze/ci/kit/fakepci"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// serve serves a device to one client after the other until the test ends, and returns the socket.
func serve(t *testing.T, d *fakemqnic.Device) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "board.sock")
	l := must.Get(vfiouser.Listen(path, 0o600))(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- vfiouser.Serve(ctx, l, fakepci.Served{Function: d.Function}, vfiouser.ServerOptions{Logger: quiet})
	}()
	t.Cleanup(func() {
		cancel()
		should.OK(t, <-served)
		l := d.Log()
		should.Hold(t, len(l.Strays) == 0, "strays: %v", l.Strays)
		should.OK(t, d.Close())
	})
	return path
}

// BenchmarkPort: a doorbell is a call, as over vfio-user; of a board it is a store.
func BenchmarkPort(b *testing.B) {
	porttest.Benchmarks(b, func(b *testing.B, pool *ethernet.Pool) porttest.Quick {
		d := newFake(b, fakemqnic.Options{})
		q := open(b, d, ethernet.Options{Pool: pool, Promiscuous: true}).Queue(0)
		d.Quick = true
		b.Cleanup(func() { d.Quick = false })
		return porttest.Quick{
			Queue: q, Fill: func(n int) { d.Fill(0, 0, 60, n) }, Drain: func(int) { d.Drain(0, 0) },
			Refill: func(n int) { d.Refill(0, 0, n) },
		}
	})
}
