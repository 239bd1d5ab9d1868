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
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

const (
	page = 4096
	both = vfio.DMARead | vfio.DMAWrite
	// timeout bounds waits that ought to be short.
	timeout = time.Minute
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
	leaktest.Check(t)
	return serveAt(t, filepath.Join(t.TempDir(), "nic.sock"), o)
}

func serveAt(t testing.TB, path string, o vfiouser.ServerOptions) *running {
	t.Helper()
	dev := newCopier(t)
	l, err := vfiouser.Listen(path, 0o600)
	must.OK(t, err)
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
			should.OK(t, err)
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
	d := must.Get(vfio.Open(context.Background(), "vfio-user:"+r.path))(t)
	t.Cleanup(func() { should.OK(t, d.Close()) })
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

// holds claims how many ranges and files of clients the server has.
func (r *running) holds(t testing.TB, ranges, files int) {
	t.Helper()
	s := r.Stats()
	should.Hold(t, s.Ranges == ranges && s.Files == files, "%+v", s)
}

func alloc(t testing.TB, size uint64) *vfio.Memory {
	t.Helper()
	m := must.Get(vfio.AllocMemory(size, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
	t.Cleanup(func() { should.OK(t, m.Close()) })
	return m
}

func newEvent(t testing.TB) *vfio.Eventfd {
	t.Helper()
	e := must.Get(vfio.NewEventfd())(t)
	t.Cleanup(func() { should.OK(t, e.Close()) })
	return e
}

// signalled waits for an eventfd.
func signalled(t testing.TB, e *vfio.Eventfd) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	must.OK(t, e.Wait(ctx))
}

// socketPair returns the two ends of a connection.
func socketPair(t testing.TB) (a, b *net.UnixConn) {
	t.Helper()
	fds := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	conn := func(fd int) *net.UnixConn {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		c := must.Get(net.FileConn(f))(t)
		t.Cleanup(func() { _ = c.Close() })
		return c.(*net.UnixConn)
	}
	return conn(fds[0]), conn(fds[1])
}
