package passedfd_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/passedfdtest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// timeout bounds what ought to be short: much less than a lingering close takes.
const timeout = 20 * time.Second

// within fails the test if f does not return.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(timeout):
		t.Fatalf("%s does not return", what)
	}
}

// TestClose: closing what another has passed does not wait, and closes it.
func TestClose(t *testing.T) {
	file := func(fd int, err error) int {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return fd
	}
	for name, open := range map[string]func(t *testing.T) int{
		"memory":   func(*testing.T) int { return file(unix.MemfdCreate("test", unix.MFD_CLOEXEC)) },
		"eventfd":  func(*testing.T) int { return file(unix.Eventfd(0, unix.EFD_CLOEXEC)) },
		"timerfd":  func(*testing.T) int { return file(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)) },
		"null":     func(*testing.T) int { return file(unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)) },
		"no file":  func(*testing.T) int { return file(unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0)) },
		"lingers":  func(t *testing.T) int { return passedfdtest.Lingering(t) },
		"datagram": func(t *testing.T) int { return parcel(t, unix.SOCK_DGRAM) },
		"packet":   func(t *testing.T) int { return parcel(t, unix.SOCK_SEQPACKET) },
		"packet behind empty ones": func(t *testing.T) int {
			fd := passedfdtest.Lingering(t)
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			for range 10 {
				err = errors.Join(err, unix.Sendmsg(pair[1], nil, nil, nil, 0))
			}
			err = errors.Join(err, unix.Sendmsg(pair[1], nil, unix.UnixRights(fd), nil, 0),
				unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSPIDFD, 1), unix.Close(pair[1]), unix.Close(fd))
			return file(pair[0], err)
		},
		"parcel in a parcel": func(t *testing.T) int {
			inner := parcel(t, unix.SOCK_STREAM)
			defer unix.Close(inner)
			return passedfdtest.Parcel(t, unix.SOCK_STREAM, inner)
		},
		"parcel in a connection that nobody accepts": func(t *testing.T) int {
			path := filepath.Join(t.TempDir(), "socket")
			l := file(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
			if err := errors.Join(unix.Bind(l, &unix.SockaddrUnix{Name: path}), unix.Listen(l, 4)); err != nil {
				t.Fatal(err)
			}
			deliver(t, path, parcel(t, unix.SOCK_STREAM))
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := leaktest.Files(t)
			fd := open(t)
			within(t, "Close", func() { passedfd.Close(fd) })
			// The peers of lingering sockets stay until the test ends.
			if n := leaktest.Files(t); n > before+1 {
				t.Errorf("%d files are open, %d before", n, before)
			}
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
				t.Errorf("it is still open: %v", err)
			}
			goleak.VerifyNone(t) // nobody waits for the close
		})
	}
}

// parcel is a socket that holds a lingering one.
func parcel(t *testing.T, kind int) int {
	t.Helper()
	fd := passedfdtest.Lingering(t)
	defer unix.Close(fd)
	return passedfdtest.Parcel(t, kind, fd)
}

// deliver sends fd to a socket, closes it and goes.
func deliver(t *testing.T, path string, fd int) {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.WriteMsgUnix([]byte{1}, unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Close(fd), c.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestCloseOfConnections: what was sent over a connection, and not received, does
// not make its end wait.
func TestCloseOfConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, path, parcel(t, unix.SOCK_STREAM))
	c, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	deliver(t, path, parcel(t, unix.SOCK_STREAM)) // never accepted
	within(t, "CloseConn", func() { passedfd.CloseConn(c) })
	within(t, "CloseListener", func() { passedfd.CloseListener(l) })
	goleak.VerifyNone(t)
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("reading: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}

// TestUnanswered: files that cannot be closed for the time being keep no caller
// waiting, take no more than a few threads, and are closed in the end.
func TestUnanswered(t *testing.T) {
	const many = 1200
	before := leaktest.Files(t)
	fd, release := passedfdtest.Unanswered(t)
	if passedfd.IsMemory(fd) || passedfd.TakeEventfd(fd) == nil {
		t.Error("a file of a FUSE file system is taken for something else")
	}
	within(t, "Close", func() {
		for i := range many {
			dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				t.Error(err)
			}
			passedfd.Close(dup)
			if passedfd.Full() && i < many/2 {
				t.Errorf("full after %d files", i)
			}
		}
	})
	if !passedfd.Full() {
		t.Errorf("%d files wait, and there is still room", many)
	}
	// Others are closed all the same.
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	passedfd.Close(event)
	if _, err := unix.FcntlInt(uintptr(event), unix.F_GETFD, 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("an eventfd is not closed meanwhile: %v", err)
	}
	passedfd.Close(fd)
	release()
	waittest.Until(t, "files closed", func() bool { return leaktest.Files(t) <= before && !passedfd.Full() })
}

func TestTakeEventfd(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := passedfd.TakeEventfd(fd); err != nil {
		t.Error(err)
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
	memory, err := unix.MemfdCreate("anon_inode:[eventfd]", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memory)
	if err := passedfd.TakeEventfd(memory); !errors.Is(err, passedfd.ErrNotEventfd) {
		t.Errorf("a file in memory: %v", err)
	}
	if !passedfd.IsMemory(memory) || passedfd.IsMemory(fd) {
		t.Error("files in memory are not known")
	}
}
