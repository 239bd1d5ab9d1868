package unixsocket_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// networks are the kinds of socket that the callers use.
var networks = []string{"unix", "unixpacket"}

// each runs a test with a path for either kind of socket.
func each(t *testing.T, test func(t *testing.T, network, path string)) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) { test(t, network, filepath.Join(t.TempDir(), "s")) })
	}
}

func listen(t *testing.T, network, path string) *unixsocket.Listener {
	t.Helper()
	l := must.Get(unixsocket.Listen(t.Context(), network, path, 0o600))(t)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// dead leaves a socket as a server does that has died.
func dead(t *testing.T, network, path string) {
	t.Helper()
	l := must.Get(net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network}))(t)
	l.SetUnlinkOnClose(false)
	must.OK(t, l.Close())
}

// answers checks that a listener is the one that clients of a path find.
func answers(t *testing.T, l *unixsocket.Listener, network, path string) {
	t.Helper()
	c := must.Get(net.Dial(network, path))(t)
	defer c.Close()
	must.OK(t, l.SetDeadline(time.Now().Add(10*time.Second)))
	found := must.Get(l.AcceptUnix())(t)
	defer found.Close()
	if who, err := unixsocket.Peer(found); err != nil || int(who.Pid) != os.Getpid() || int(who.Uid) != os.Geteuid() {
		t.Errorf("the peer is %+v, %v", who, err)
	}
}

// TestListenTogether starts servers at a dead socket at once: one gets it.
func TestListenTogether(t *testing.T) {
	each(t, func(t *testing.T, network, path string) {
		for i := range 100 {
			path := fmt.Sprint(path, i)
			dead(t, network, path)
			var listeners [4]*unixsocket.Listener
			var errs [len(listeners)]error
			var all sync.WaitGroup
			for i := range listeners {
				all.Go(func() { listeners[i], errs[i] = unixsocket.Listen(t.Context(), network, path, 0o600) })
			}
			all.Wait()
			var won *unixsocket.Listener
			for i, l := range listeners {
				switch {
				case errs[i] == nil && won == nil:
					won = l
				case !errors.Is(errs[i], unix.EADDRINUSE):
					t.Fatalf("server %d: %v", i, errs[i])
				}
			}
			if won == nil {
				t.Fatalf("nobody has the socket: %v", errs)
			}
			answers(t, won, network, path)
			must.OK(t, won.Close())
		}
	})
}

// TestInUse: what is there and alive, or is no socket, stays as it is.
func TestInUse(t *testing.T) {
	each(t, func(t *testing.T, network, path string) {
		l := listen(t, network, path)
		file, folder := path+"-file", filepath.Dir(path)
		must.OK(t, os.WriteFile(file, []byte("precious"), 0o600))
		abstract := fmt.Sprintf("@trapeze-unixsocket-%d-%s", os.Getpid(), network)
		listen(t, network, abstract)
		for _, other := range networks {
			for _, taken := range []string{path, file, folder, abstract} {
				if taken == abstract && other != network {
					continue // names are apart for each kind of socket
				}
				if l, err := unixsocket.Listen(t.Context(), other, taken, 0o600); l != nil || !errors.Is(err, unix.EADDRINUSE) {
					t.Errorf("%s at %s: %v", other, taken, err)
				}
			}
		}
		if b, err := os.ReadFile(file); string(b) != "precious" {
			t.Errorf("the file holds %q, %v", b, err)
		}
		should.Refuse(unixsocket.Listen(t.Context(), network, filepath.Join(folder, "none", "s"), 0o600))(t, fs.ErrNotExist, "in no folder")
		for { // the connections that the others have looked with
			must.OK(t, l.SetDeadline(time.Now().Add(10*time.Millisecond)))
			c, err := l.AcceptUnix()
			if err != nil {
				break
			}
			_ = c.Close()
		}
		answers(t, l, network, path)
	})
}

// TestQueueFull: a server whose queue of clients is full is alive.
func TestQueueFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	server := must.Get(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(server)
	must.OK(t, errors.Join(unix.Bind(server, &unix.SockaddrUnix{Name: path}), unix.Listen(server, 0)))
	for {
		c, err := net.Dial("unix", path)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		must.OK(t, err)
		defer c.Close()
	}
	should.Refuse(unixsocket.Listen(t.Context(), "unix", path, 0o600))(t, unix.EADDRINUSE)
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

// TestClose removes the path, but not what has taken the socket's place.
func TestClose(t *testing.T) {
	each(t, func(t *testing.T, network, path string) {
		first := listen(t, network, path)
		must.OK(t, os.Remove(path))
		second := listen(t, network, path)
		must.OK(t, first.Close())
		answers(t, second, network, path)
		must.OK(t, second.SetDeadline(time.Time{}))
		accepted := make(chan error)
		go func() {
			_, err := second.Accept()
			accepted <- err
		}()
		must.OK(t, second.Close())
		should.Fail(t, <-accepted, net.ErrClosed, "who accepts")
		should.Refuse(os.Lstat(path))(t, fs.ErrNotExist, "the socket is left")
		listen(t, network, path)
		must.OK(t, second.Close()) // again
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("the second Close has removed what is not its own: %v", err)
		}
	})
}

func TestMode(t *testing.T) {
	dir := t.TempDir()
	for _, tt := range []struct{ mode, want fs.FileMode }{{0o600, 0o600}, {0o777, 0o777}, {0, 0}} {
		path := filepath.Join(dir, fmt.Sprint(tt.mode))
		l := must.Get(unixsocket.Listen(t.Context(), "unix", path, tt.mode))(t)
		defer l.Close()
		if info, err := os.Lstat(path); err != nil || info.Mode() != fs.ModeSocket|tt.want {
			t.Errorf("%v: %v, %v", tt.mode, info.Mode(), err)
		}
	}
	byUmask, stock := filepath.Join(dir, "umask"), filepath.Join(dir, "stock")
	l := must.Get(unixsocket.Listen(t.Context(), "unix", byUmask, unixsocket.ByUmask))(t)
	defer l.Close()
	other := must.Get(net.Listen("unix", stock))(t)
	defer other.Close()
	a, err1 := os.Lstat(byUmask)
	b, err2 := os.Lstat(stock)
	if err := errors.Join(err1, err2); err != nil || a.Mode() != b.Mode() {
		t.Errorf("by umask %v, else %v, %v", a.Mode(), b.Mode(), err)
	}
}

// TestLocked: somebody who holds the folder's lock does not keep a server from its
// context.
func TestLocked(t *testing.T) {
	dir := t.TempDir()
	fd := must.Get(unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	must.OK(t, unix.Flock(fd, unix.LOCK_EX))
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	should.Refuse(unixsocket.Listen(ctx, "unix", filepath.Join(dir, "s"), 0o600))(t, context.DeadlineExceeded)
}

func TestCheckPath(t *testing.T) {
	for path, good := range map[string]bool{
		"/run/nic": true, "@nic": true, strings.Repeat("x", 107): true,
		"": false, "@": false, strings.Repeat("x", 108): false, "a\x00b": false,
	} {
		if err := unixsocket.CheckPath(path); (err == nil) != good {
			t.Errorf("%q: %v", path, err)
		}
		if good {
			continue
		}
		if l, err := unixsocket.Listen(t.Context(), "unix", path, unixsocket.ByUmask); l != nil || err == nil {
			t.Errorf("%q: a socket, %v", path, err)
		}
	}
}
