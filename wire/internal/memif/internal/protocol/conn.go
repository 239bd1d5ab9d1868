package protocol

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

// ErrAgain: nothing has come yet, or there is no room for a message. Poll the
// descriptor and try again.
var ErrAgain = errors.New("try again later")

// Conn is a connection. It never waits: it is for a loop that polls FD. It is
// for one goroutine.
type Conn struct {
	fd     int
	in     [MessageSize + 1]byte // a byte more, to see what is too long
	rights []byte
}

func newConn(fd int) *Conn {
	return &Conn{fd: fd, rights: passedfd.NewControl()}
}

// Dial connects to the server at a socket: a path, or "@" and an abstract name.
// Errors are those of socket(2) and connect(2); EAGAIN means that the server's
// queue is full.
func Dial(socket string) (*Conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("connect", err)
	}
	return newConn(fd), nil
}

// FD is the descriptor to poll. It stays with the Conn.
func (c *Conn) FD() int { return c.fd }

// Close closes the connection. It takes no longer than passedfd.Timeout, whatever
// the peer has sent.
func (c *Conn) Close() { passedfd.CloseSocket(c.fd) }

// Receive returns the next message, and the file descriptor that came with it,
// or -1; the caller closes it, see passedfd.Close. It fails with ErrAgain if there is none, with io.EOF
// if the peer has gone, and else with the error of recvmsg(2). It fails with an *Error if the
// message has not the right size, a type that exists, or its type's number of file descriptors.
func (c *Conn) Receive() (Body, int, error) {
	n, rights, flags, _, err := unix.Recvmsg(c.fd, c.in[:], c.rights, unix.MSG_CMSG_CLOEXEC)
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return nil, -1, ErrAgain
	case err != nil:
		return nil, -1, os.NewSyscallError("recvmsg", err)
	}
	fds := passedfd.Parse(c.rights[:rights])
	if n == 0 && len(fds) == 0 {
		return nil, -1, io.EOF
	}
	body, err := c.check(n, len(fds), flags&unix.MSG_CTRUNC != 0)
	if err != nil {
		_ = passedfd.Close(fds...) // no caller goes on with the connection
		return nil, -1, err
	}
	if len(fds) == 0 {
		return body, -1, nil
	}
	return body, fds[0], nil
}

// check decodes a packet of n bytes that has come with so many descriptors.
func (c *Conn) check(n, fds int, more bool) (Body, error) {
	if n != MessageSize {
		return nil, &Error{Field: "size in bytes", Value: uint64(n), Why: "want 128"}
	}
	m := (*Message)(c.in[:])
	body, err := Decode(m)
	if err != nil {
		return nil, err
	}
	want := m.Type().Rights()
	switch {
	case fds > want, more && want == 0:
		return nil, &Error{Message: m.Type(), Field: "number of file descriptors", Value: uint64(fds), Why: "there are too many"}
	case more:
		return nil, &Error{Message: m.Type(), Field: "number of file descriptors", Value: uint64(fds),
			Why: "there were more, or this process can open no more"}
	case fds < want:
		return nil, &Error{Message: m.Type(), Field: "number of file descriptors", Value: uint64(fds), Why: "one is missing"}
	}
	return body, nil
}

// Send sends a message, with a duplicate of fd unless that is negative. It
// fails with ErrAgain if the peer does not read, or with the error of
// sendmsg(2).
func (c *Conn) Send(body Body, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	err := unix.Sendmsg(c.fd, Encode(body)[:], rights, nil, unix.MSG_NOSIGNAL)
	if errors.Is(err, unix.EAGAIN) {
		return ErrAgain
	}
	return os.NewSyscallError("sendmsg", err)
}
