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
	"time"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/via"
)

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
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil && !cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			t.Error(err)
		}
	})
	names = socketsIn(folder)
	for end := time.Now().Add(conform.Timeout); ; time.Sleep(time.Millisecond) {
		c, err := net.Dial("unix", names[1])
		if err == nil {
			_ = c.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	return names, cmd.Process
}

// onProcess opens two NICs that another process serves over vfio-user.
func onProcess(b *testing.B) (x, y *via.NIC) {
	b.Helper()
	names, _ := serveProcess(b)
	return openBoth(b, "vfio-user:"+names[0], "vfio-user:"+names[1], via.Options{})
}

// BenchmarkServed is BenchmarkLatency with NICs in another process, behind
// vfio-user: doorbells, descriptors and payloads go through shared memory, and
// while it polls there is neither a message nor a system call of ours. The
// other process runs two engines, so that four threads share the machine.
// x-inline is the ratio to NICs in this process, in the same run.
func BenchmarkServed(b *testing.B) {
	for _, size := range []int{64, 4096, 65536} {
		b.Run(sizeName(size), func(b *testing.B) {
			x, y := onProcess(b)
			p := newPingPong(b, conform.NewWorld(b, x, y), size)
			for range 20 {
				p.round(b)
			}
			b.ReportAllocs()
			for b.Loop() {
				p.round(b)
			}
			p50 := median(500, func() { p.round(b) }) / 2
			u, v := conform.OnMemory(b, "", via.Options{})
			q := newPingPong(b, conform.NewWorld(b, u, v), size)
			inline := median(2000, func() { q.round(b) }) / 2
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/one-way")
			b.ReportMetric(p50, "p50-ns/one-way")
			b.ReportMetric(p50/inline, "x-inline")
		})
	}
}
