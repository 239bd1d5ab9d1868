package unixsocket

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

// ErrKind is wrapped by errors about a descriptor that is no UNIX stream socket that listens.
var ErrKind = errors.New("not a UNIX stream socket that listens")

// Passed makes a listener of a descriptor that another process has passed. It owns the descriptor, also if it fails: with
// ErrKind, or as net.FileListener does. The listener does not remove its path.
func Passed(fd int) (*Listener, error) {
	// A listener can be made of others too, but not used.
	if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err != nil || listens == 0 || !isSocket(fd, unix.SOCK_STREAM) {
		_ = passedfd.Close(fd)
		return nil, ErrKind
	}
	l, err := adopt(fd, net.FileListener)
	if err != nil {
		return nil, err
	}
	ours, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(ErrKind, l.Close())
	}
	ours.SetUnlinkOnClose(false)
	return Own(ours), nil
}

// Removes reports whether Close removes the socket's path.
func (l *Listener) Removes() bool { return l.file != nil }

// Remove has Close remove the path at which the socket is, as another process would have that has
// passed it.
func (l *Listener) Remove() (err error) {
	if l.path = l.Addr().String(); l.path == "" || l.path[0] == '@' {
		return nil
	}
	l.file, err = os.Lstat(l.path)
	return err
}

// Leave closes the socket here, and leaves it and its path to a process to which it was passed.
func (l *Listener) Leave() error {
	l.remove.Do(func() {})
	return l.UnixListener.Close()
}

// Duplicate returns another descriptor of a socket, which is the caller's.
func Duplicate(c syscall.Conn) (dup int, err error) {
	err = passedfd.Control(c, func(fd int) error {
		dup, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		return os.NewSyscallError("dup", err)
	})
	return dup, err
}
