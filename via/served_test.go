package via_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/via"
)

// onSockets opens two emulated NICs on a switch, each behind a vfio-user socket.
func onSockets(t testing.TB, options string, opts via.Options) (a, b *via.NIC) {
	t.Helper()
	folder := t.TempDir()
	names := []string{filepath.Join(folder, "nic0"), filepath.Join(folder, "nic1")}
	nics, err := emulator.Fleet(t.Context(), "emu:"+options, names)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	for i, d := range nics {
		l, err := vfiouser.Listen(names[i], 0o600)
		if err != nil {
			t.Fatal(err)
		}
		serving.Go(func() {
			if err := vfiouser.Serve(ctx, l, d, vfiouser.ServerOptions{Logger: slog.New(slog.DiscardHandler)}); err != nil {
				t.Error(err)
			}
		})
	}
	// Clean-ups run last one first: the clients leave before the servers do.
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		for _, d := range nics {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		}
	})
	return openBoth(t, "vfio-user:"+names[0], "vfio-user:"+names[1], opts)
}
