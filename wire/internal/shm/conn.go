package shm

import (
	"errors"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// conn is a socket that carries messages.
type conn struct{ *unixsocket.Conn }

func newConn(c *net.UnixConn) *conn { return &conn{unixsocket.NewConn(c)} }

// send sends a message, with file descriptors. A peer that does not read is given up after sendTime. It fails
// with ErrGone when the peer has closed.
func (c *conn) send(m message, fds ...int) error {
	p := m.encode()
	err := c.Send(p[:], time.Now().Add(sendTime), fds...)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return errors.Join(ends.ErrGone, err)
	}
	return err
}

// trySend sends a message unless that would have to wait.
func (c *conn) trySend(m message) {
	p := m.encode()
	// A peer whose queue is full has enough to wake up for, and one that is gone
	// needs no message.
	_ = passedfd.Control(c, func(fd int) error { return unix.Send(fd, p[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL) })
}

// interrupt has receive fail.
func (c *conn) interrupt() { c.Interrupt(false) }

// receive waits for a message. It brings no more descriptors than one of its kind does, and perhaps fewer; they
// are the caller's. It fails with ErrGone when the peer has closed.
func (c *conn) receive() (m message, fds []int, err error) {
	var p [messageSize]byte
	n, fds, cut, err := c.Receive(p[:], time.Time{})
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
	case err != nil:
		err = errors.Join(ends.ErrGone, err)
	default:
		m, err = decode(p[:n])
		if err == nil && (cut || len(fds) > m.kind.files()) {
			err = broken("descriptors of a message", uint64(len(fds)), "those of its kind")
		}
	}
	if err != nil {
		_ = passedfd.Close(fds...) // this is the connection's end
		return message{}, nil, err
	}
	return m, fds, nil
}

// samePeer reports whether the process at the other end belongs to this one's
// user, or to root.
func (c *conn) samePeer() bool {
	who, err := unixsocket.Peer(c.UnixConn)
	return err == nil && (who.Uid == 0 || who.Uid == uint32(os.Geteuid()))
}
