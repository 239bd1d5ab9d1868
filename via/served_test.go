package via_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/via"
)

// onSockets opens two emulated NICs on a switch, each behind a vfio-user socket.
func onSockets(t testing.TB, options string, opts via.Options) (a, b *via.NIC) {
	t.Helper()
	folder := t.TempDir()
	names := []string{filepath.Join(folder, "nic0"), filepath.Join(folder, "nic1")}
	nics := must.Get(emulator.Fleet(t.Context(), "emu:"+options, names))(t)
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	for i, d := range nics {
		l := must.Get(vfiouser.Listen(names[i], 0o600))(t)
		serving.Go(func() {
			should.OK(t, vfiouser.Serve(ctx, l, d, vfiouser.ServerOptions{Logger: slog.New(slog.DiscardHandler)}))
		})
	}
	// Clean-ups run last one first: the clients leave before the servers do.
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		for _, d := range nics {
			should.OK(t, d.Close())
		}
	})
	return openBoth(t, "vfio-user:"+names[0], "vfio-user:"+names[1], opts)
}

// servedChild makes this program serve two NICs at sockets in the folder that it
// names, until it is told to end.
const servedChild = "TRAPEZE_VIA_SERVE"

func socketsIn(folder string) []string {
	return []string{filepath.Join(folder, "nic0"), filepath.Join(folder, "nic1")}
}

func runServedChild(folder string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	names := socketsIn(folder)
	nics, err := emulator.Fleet(ctx, "emu:", names)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var serving sync.WaitGroup
	for i, d := range nics {
		l, err := vfiouser.Listen(names[i], 0o600)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		serving.Go(func() {
			_ = vfiouser.Serve(ctx, l, d, vfiouser.ServerOptions{Logger: slog.New(slog.DiscardHandler)})
		})
	}
	serving.Wait()
	for _, d := range nics {
		_ = d.Close()
	}
	return 0
}

// serveProcess has another process serve two NICs over vfio-user, until it is sent a
// signal or the test ends.
func serveProcess(t testing.TB) (names []string, child *os.Process) {
	t.Helper()
	folder := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), servedChild+"="+folder)
	cmd.Stderr = os.Stderr
	must.OK(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil && !cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			t.Error(err)
		}
	})
	names = socketsIn(folder)
	waittest.Until(t, "the second name is served", func() bool {
		c, err := net.Dial("unix", names[1])
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
	return names, cmd.Process
}
