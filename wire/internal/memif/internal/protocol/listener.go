package protocol

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
)

// Listener is a server's socket. It never waits, as a Conn.
type Listener struct {
	socket *unixsocket.Listener
	fd     int
}

// Listen makes the socket of a server: at a path, or "@" and an abstract name.
// A socket that a dead server has left is replaced. It fails as unixsocket.Listen
// does: with EADDRINUSE if a server is there, or something that is no socket.
func Listen(socket string) (*Listener, error) {
	made, err := unixsocket.Listen(context.Background(), "unixpacket", socket, unixsocket.ByUmask)
	if err != nil {
		return nil, err
	}
	l := &Listener{socket: made}
	if err := passedfd.Control(made, func(fd int) error { l.fd = fd; return nil }); err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return l, nil
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
func (l *Listener) Close() error { return l.socket.Close() }
