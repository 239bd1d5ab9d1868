package nic_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/cable"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ci/kit/wiretest"
	"github.com/trapeze-nic/trapeze/wire/internal/nic"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout is far more than anything here takes; what waits longer never ends.
const timeout = 30 * time.Second

// quiet keeps what the tests provoke out of their output.
var quiet = slog.New(slog.DiscardHandler)

// open opens a port that is closed, and gives everything back, with the test.
func open(t testing.TB, o nic.Options) *nic.Port {
	t.Helper()
	o.Logger = quiet
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	p := must.Get(nic.New(ctx, o))(t)
	t.Cleanup(func() { closePort(t, p) })
	return p
}

func closePort(t testing.TB, p *nic.Port) {
	t.Helper()
	should.OK(t, p.Close())
	p.Reserve(0)
	p.Receive()
}

// pair opens the ends of a cable, and waits for their link.
func pair(t testing.TB, o nic.Options) (a, b *nic.Port) {
	t.Helper()
	o.Address = cable.Scheme + ":" + t.Name()
	a, b = open(t, o), open(t, o)
	waittest.Until(t, "the link is up", func() bool { return a.LinkUp() && b.LinkUp() })
	return a, b
}

// put commits a frame of n bytes, all of which are number, and reports whether there was
// room. It is sent with the next Flush.
func put(p *nic.Port, number byte, n int) bool {
	b := p.Reserve(n)
	if b == nil {
		return false
	}
	for i := range b {
		b[i] = number
	}
	p.Commit()
	return true
}

// get waits for a frame and checks it.
func get(t testing.TB, p *nic.Port, number byte, n int) {
	t.Helper()
	b := wiretest.Await(t, p)
	must.Hold(t, len(b) == n && b[0] == number && b[n-1] == number, "frame %d: %d bytes from % x", number, len(b), b[:14])
	p.Release()
}
