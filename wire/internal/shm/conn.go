package shm

import (
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// conn is a socket that carries messages.
type conn struct {
	c   *net.UnixConn
	raw syscall.RawConn
	// sending is held by who sets the deadline and sends.
	sending sync.Mutex
	control []byte // of who receives
}

func newConn(c *net.UnixConn) (*conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &conn{c: c, raw: raw, control: passedfd.NewControl()}, nil
}

// send sends a message, with a file descriptor unless fd is negative. A peer
// that does not read is given up after sendTime. It fails with ErrGone when the peer
// has closed.
func (c *conn) send(m message, fd int) error {
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	p := m.encode()
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := c.c.SetWriteDeadline(time.Now().Add(sendTime)); err != nil {
		return err
	}
	_, _, err := c.c.WriteMsgUnix(p[:], rights, nil)
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
	_ = c.raw.Control(func(fd uintptr) {
		_ = unix.Send(int(fd), p[:], unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	})
}

// receive waits for a message. One of the kinds that may bring a descriptor can; it
// is the caller's. Else fd is -1. It fails with ErrGone when the peer has closed.
func (c *conn) receive(may ...kind) (m message, fd int, err error) {
	var p [messageSize + 1]byte
	n, oobn, flags, _, err := c.c.ReadMsgUnix(p[:], c.control)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return message{}, -1, err
		}
		return message{}, -1, errors.Join(ends.ErrGone, err)
	}
	fds := passedfd.Parse(c.control[:oobn])
	m, err = judge(p[:n], flags, len(fds), may)
	switch {
	case err != nil:
		_ = passedfd.Close(fds...) // this is the connection's end
		return message{}, -1, err
	case len(fds) == 0:
		return m, -1, nil
	}
	return m, fds[0], nil
}

// judge decodes a message that has come with so many descriptors, and flags of
// recvmsg.
func judge(p []byte, flags, fds int, may []kind) (message, error) {
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || fds > 1 {
		return message{}, broken("flags of a message (recvmsg)", uint64(flags), "one message of 32 bytes with one descriptor at most")
	}
	m, err := decode(p)
	if err == nil && fds == 1 && !slices.Contains(may, m.kind) {
		err = broken("kind of a message with a descriptor", uint64(m.kind), "2 in answer to hello, 7, 13, 14 or 15 later")
	}
	return m, err
}

// samePeer reports whether the process at the other end belongs to this one's
// user, or to root.
func (c *conn) samePeer() bool {
	who, err := unixsocket.Peer(c.c)
	if err != nil {
		return false
	}
	return who.Uid == 0 || who.Uid == uint32(os.Geteuid())
}

// close takes no longer than passedfd.Timeout, whatever the peer has sent.
func (c *conn) close() { passedfd.CloseConn(c.c) }
