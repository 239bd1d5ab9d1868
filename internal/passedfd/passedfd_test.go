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
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/passedfdtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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
	for name, open := range map[string]func(t *testing.T) int{
		"memory":   func(t *testing.T) int { return must.Get(unix.MemfdCreate("test", unix.MFD_CLOEXEC))(t) },
		"eventfd":  func(t *testing.T) int { return must.Get(unix.Eventfd(0, unix.EFD_CLOEXEC))(t) },
		"timerfd":  func(t *testing.T) int { return must.Get(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC))(t) },
		"null":     func(t *testing.T) int { return must.Get(unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0))(t) },
		"no file":  func(t *testing.T) int { return must.Get(unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0))(t) },
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
			must.OK(t, err)
			return pair[0]
		},
		"parcel in a parcel": func(t *testing.T) int {
			inner := parcel(t, unix.SOCK_STREAM)
			defer unix.Close(inner)
			return passedfdtest.Parcel(t, unix.SOCK_STREAM, inner)
		},
		"parcel in a connection that nobody accepts": func(t *testing.T) int {
			path := filepath.Join(t.TempDir(), "socket")
			l := must.Get(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
			must.OK(t, errors.Join(unix.Bind(l, &unix.SockaddrUnix{Name: path}), unix.Listen(l, 4)))
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
			should.Refuse(unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0))(t, unix.EBADF, "it is still open")
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
	c := must.Get(net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"}))(t)
	if _, _, err := c.WriteMsgUnix([]byte{1}, unix.UnixRights(fd), nil); err != nil {
		t.Fatal(err)
	}
	must.OK(t, errors.Join(unix.Close(fd), c.Close()))
}

// TestCloseOfConnections: what was sent over a connection, and not received, does
// not make its end wait.
func TestCloseOfConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	deliver(t, path, parcel(t, unix.SOCK_STREAM))
	c := must.Get(l.AcceptUnix())(t)
	deliver(t, path, parcel(t, unix.SOCK_STREAM)) // never accepted
	within(t, "CloseConn", func() { passedfd.CloseConn(c) })
	within(t, "CloseConn of a listener", func() { passedfd.CloseConn(l) })
	goleak.VerifyNone(t)
	should.Refuse(c.Read(make([]byte, 1)))(t, net.ErrClosed, "reading")
	should.Refuse(os.Lstat(path))(t, os.ErrNotExist, "the socket is still there")
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
			should.OK(t, err)
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
	event := must.Get(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
	passedfd.Close(event)
	should.Refuse(unix.FcntlInt(uintptr(event), unix.F_GETFD, 0))(t, unix.EBADF, "an eventfd is not closed meanwhile")
	passedfd.Close(fd)
	release()
	waittest.Until(t, "files closed", func() bool { return leaktest.Files(t) <= before && !passedfd.Full() })
}

func TestTakeEventfd(t *testing.T) {
	fd := must.Get(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
	defer unix.Close(fd)
	should.OK(t, passedfd.TakeEventfd(fd))
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags %#x, %v", flags, err)
	}
	memory := must.Get(unix.MemfdCreate("anon_inode:[eventfd]", unix.MFD_CLOEXEC))(t)
	defer unix.Close(memory)
	should.Fail(t, passedfd.TakeEventfd(memory), passedfd.ErrNotEventfd, "a file in memory")
	if !passedfd.IsMemory(memory) || passedfd.IsMemory(fd) {
		t.Error("files in memory are not known")
	}
}
