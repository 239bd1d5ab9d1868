package protocol

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

// backlog is how many clients may wait to be accepted. DPDK has 1.
const backlog = 16

// Listener is a server's socket. It never waits, as a Conn.
type Listener struct {
	fd   int
	path string // to be removed; empty if abstract
	// The file that path is: another may take its place.
	file fs.FileInfo
}

// Listen makes the socket of a server: at a path, or "@" and an abstract name.
// A socket that a dead server has left is replaced. Errors are those of
// socket(2) and bind(2): EADDRINUSE if a server is there, or something that is
// no socket.
func Listen(socket string) (*Listener, error) {
	l := &Listener{}
	if socket[0] != '@' {
		if err := removeDead(socket); err != nil {
			return nil, err
		}
		l.path = socket
	}
	var err error
	if l.fd, err = newSocket(); err != nil {
		return nil, err
	}
	if err := unix.Bind(l.fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		unix.Close(l.fd)
		return nil, os.NewSyscallError("bind", err)
	}
	if err := unix.Listen(l.fd, backlog); err != nil {
		return nil, errors.Join(os.NewSyscallError("listen", err), l.Close())
	}
	if l.path != "" {
		if l.file, err = os.Lstat(l.path); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return l, nil
}

// removeDead removes a socket at path that nobody listens at.
func removeDead(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w: there is something that is no socket", unix.EADDRINUSE)
	}
	c, err := Dial(path)
	switch {
	case err == nil:
		c.Close()
		return fmt.Errorf("%w: a server listens there", unix.EADDRINUSE)
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EPROTOTYPE):
		return fmt.Errorf("%w: a server listens there", unix.EADDRINUSE)
	case !errors.Is(err, unix.ECONNREFUSED):
		return err
	}
	return os.Remove(path)
}

// FD is the descriptor to poll. It stays with the Listener.
func (l *Listener) FD() int { return l.fd }

// Accept returns the next client. It fails with ErrAgain if there is none, or
// with the error of accept(2).
func (l *Listener) Accept() (*Conn, error) {
	fd, _, err := unix.Accept4(l.fd, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
		return nil, ErrAgain
	case err != nil:
		return nil, os.NewSyscallError("accept", err)
	}
	return newConn(fd), nil
}

// Close closes the socket, and removes it from the file system if it is still
// there.
func (l *Listener) Close() error {
	passedfd.CloseSocket(l.fd)
	if l.file == nil {
		return nil
	}
	if info, err := os.Lstat(l.path); err == nil && os.SameFile(info, l.file) {
		return os.Remove(l.path)
	}
	return nil
}
