// Package passedfdtest makes file descriptors whose close waits, for tests of
// those who are passed them.
package passedfdtest

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// lingerSeconds is the wait of a lingering socket's close: longer than any test.
const lingerSeconds = 600

// Lingering makes a TCP socket with data that is never read: its last close waits.
// The caller closes the socket, but not as the last one.
func Lingering(t testing.TB) int {
	t.Helper()
	listener, fd := socket(t), socket(t)
	defer unix.Close(listener)
	// Small buffers are soon full.
	err := errors.Join(
		unix.SetsockoptInt(listener, unix.SOL_SOCKET, unix.SO_RCVBUF, 4096),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, 4096),
		unix.Bind(listener, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		unix.Listen(listener, 1))
	must.OK(t, err)
	address := must.Get(unix.Getsockname(listener))(t)
	must.OK(t, unix.Connect(fd, address))
	peer, _, err := unix.Accept4(listener, unix.SOCK_CLOEXEC)
	must.OK(t, err)
	// The end of a peer that has not read everything ends the wait.
	t.Cleanup(func() { _ = unix.Close(peer) })
	for err == nil || errors.Is(err, unix.EINTR) {
		err = unix.Send(fd, make([]byte, 4096), unix.MSG_DONTWAIT)
	}
	must.Hold(t, errors.Is(err, unix.EAGAIN), "%+v", err)
	must.OK(t, unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: lingerSeconds}))
	return fd
}

func socket(t testing.TB) int {
	t.Helper()
	return must.Get(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
}

// Parcel makes a UNIX socket of a type such as unix.SOCK_STREAM that was never
// read, with descriptors in it: closing it closes them. The caller closes it, and
// can close them at once.
func Parcel(t testing.TB, kind int, fds ...int) int {
	t.Helper()
	pair := must.Get(unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(pair[1])
	must.OK(t, unix.Sendmsg(pair[1], []byte{1}, unix.UnixRights(fds...), nil, 0))
	return pair[0]
}
