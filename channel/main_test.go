package channel_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/conform"
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// timeout bounds the waits of tests.
const timeout = 30 * time.Second

func contextFor(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

var wires atomic.Uint32

// open opens a NIC, which is closed at the end of the test.
func open(t testing.TB, address string) *via.NIC {
	t.Helper()
	nic := must.Get(via.Open(contextFor(t), address, via.Options{Logger: slog.New(slog.DiscardHandler)}))(t)
	closeLater(t, nic)
	return nic
}

// closeLater closes a NIC at the end of the test, unless that has.
func closeLater(t testing.TB, nic *via.NIC) {
	t.Cleanup(func() {
		if err := nic.Close(); err != nil && !errors.Is(err, via.ErrClosed) {
			t.Error(err)
		}
	})
}

// openBoth opens two emulated NICs on a memory wire; options start with "&".
func openBoth(t testing.TB, options string) (a, b *via.NIC) {
	t.Helper()
	address := fmt.Sprintf("emu:?wire=mem:channel-test-%d%s", wires.Add(1), options)
	return open(t, address), open(t, address)
}

// openPairs opens n pairs of channels from a to b.
func openPairs(t testing.TB, a, b *via.NIC, n int, dial, listen channel.Options) (clients, servers []*channel.Channel) {
	t.Helper()
	return conform.NewWorld(t, a, b).Channels(n, dial, listen)
}

// openPair opens one pair on NICs of its own.
func openPair(t testing.TB, options string, o channel.Options) (x, y *channel.Channel) {
	t.Helper()
	a, b := openBoth(t, options)
	clients, servers := openPairs(t, a, b, 1, o, o)
	return clients[0], servers[0]
}
