package porttest

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Quiet keeps what tests provoke out of their output.
var Quiet = slog.New(slog.DiscardHandler)

// Context ends with the test, and is far longer than anything in it takes.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

// Config completes options: a pool if there is none, a quiet logger, and a timeout.
func Config(t testing.TB, c ethernet.Options) ethernet.Options {
	t.Helper()
	if c.Pool == nil {
		c.Pool = NewPool(t, ethernet.PoolOptions{})
	}
	c.Logger = Quiet
	c.Timeout = cmp.Or(c.Timeout, timeout)
	return c
}

// Open opens a device with options that Config completes, and closes the port at the end of the
// test.
func Open(t testing.TB, d vfio.Device, c ethernet.Options) ethernet.Port {
	t.Helper()
	p := must.Get(ethernet.New(Context(t), d, Config(t, c)))(t)
	CloseAtEnd(t, p)
	return p
}

// CloseAtEnd closes c at the end of the test, which fails if that does.
func CloseAtEnd(t testing.TB, c io.Closer) {
	t.Cleanup(func() { should.OK(t, c.Close()) })
}
