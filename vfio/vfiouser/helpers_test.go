package vfiouser_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

const (
	page = 4096
	both = vfio.DMARead | vfio.DMAWrite
	// timeout bounds waits that ought to be short.
	timeout = 10 * time.Second
)

func TestMain(m *testing.M) {
	if path := os.Getenv(victimVariable); path != "" {
		if err := victim(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

// checkLeaks fails the test if it ends with other descriptors or mappings of
// files in memory than it began with. Tests that use it do not run in parallel.
func checkLeaks(t testing.TB) {
	t.Helper()
	files, mappings := leaktest.Files(t), memoryMappings(t)
	t.Cleanup(func() {
		if n := leaktest.Files(t); n != files {
			t.Errorf("%d open files, %d before", n, files)
		}
		if n := memoryMappings(t); n != mappings {
			t.Errorf("%d mappings of files in memory, %d before", n, mappings)
		}
	})
}

func memoryMappings(t testing.TB) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("/memfd:")) + bytes.Count(b, []byte("/dev/shm/"))
}

// quiet is for servers whose log nobody reads.
var quiet = vfiouser.ServerOptions{Logger: slog.New(slog.DiscardHandler)}

// running is a server that runs until the test ends or stop is called.
type running struct {
	*vfiouser.Server
	dev  *copier
	path string
	stop func()
	log  *bytes.Buffer // of use after stop
}

// serve puts a new copier behind a socket, and checks for leaks in the end.
func serve(t testing.TB, o vfiouser.ServerOptions) *running {
	t.Helper()
	checkLeaks(t)
	return serveAt(t, filepath.Join(t.TempDir(), "nic.sock"), o)
}

func serveAt(t testing.TB, path string, o vfiouser.ServerOptions) *running {
	t.Helper()
	dev := newCopier(t)
	l, err := vfiouser.Listen(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r := &running{dev: dev, path: path, log: &bytes.Buffer{}}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if r.Server, err = vfiouser.NewServer(dev, o); err != nil {
		t.Fatal(errors.Join(err, l.Close()))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l) }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(timeout):
			t.Fatal("Serve does not return")
		}
	}
	t.Cleanup(r.stop)
	return r
}

// client is what a device in another process can do.
type client interface {
	vfio.Device
	vfio.Remote
	Stats() vfiouser.ClientStats
}

// open opens the server's device through its address.
func (r *running) open(t testing.TB) client {
	t.Helper()
	d, err := vfio.Open(context.Background(), "vfio-user:"+r.path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d.(client)
}

// idle waits until the server has no client and nothing of one.
func (r *running) idle(t testing.TB) {
	t.Helper()
	waittest.Until(t, "device renewed", func() bool {
		r.dev.mu.Lock()
		defer r.dev.mu.Unlock()
		return uint64(r.dev.renewed) == r.Stats().Clients
	})
}

func alloc(t testing.TB, size uint64) *vfio.Memory {
	t.Helper()
	m, err := vfio.AllocMemory(size, vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func newEvent(t testing.TB) *vfio.Eventfd {
	t.Helper()
	e, err := vfio.NewEventfd()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

// signalled waits for an eventfd.
func signalled(t testing.TB, e *vfio.Eventfd) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	if err := e.Wait(ctx); err != nil {
		t.Fatal(err)
	}
}

// socketPair returns the two ends of a connection.
func socketPair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}
