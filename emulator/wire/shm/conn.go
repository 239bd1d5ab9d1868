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
)

// conn is a socket that carries messages.
type conn struct {
	c   *net.UnixConn
	raw syscall.RawConn
	// sending is held by who sets the deadline and sends.
	sending sync.Mutex
}

func newConn(c *net.UnixConn) (*conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &conn{c: c, raw: raw}, nil
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
		return errors.Join(ErrGone, err)
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

// maxFiles is how many file descriptors of a message are looked at; the kernel
// closes the others.
const maxFiles = 4

// receive waits for a message. One of the kinds that may bring a descriptor can; it
// is the caller's. Else fd is -1. It fails with ErrGone when the peer has closed.
func (c *conn) receive(may ...kind) (m message, fd int, err error) {
	var p [messageSize + 1]byte
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	n, oobn, flags, _, err := c.c.ReadMsgUnix(p[:], oob)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			return message{}, -1, err
		}
		return message{}, -1, errors.Join(ErrGone, err)
	}
	fds, err := descriptorsIn(oob[:oobn])
	defer func() {
		for _, f := range fds {
			if f != fd {
				unix.Close(f)
			}
		}
	}()
	fd = -1
	switch {
	case err != nil:
		return message{}, -1, err
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || len(fds) > 1:
		return message{}, -1, &PeerError{"flags of a message (recvmsg)", uint64(flags), "one message of 32 bytes with one descriptor at most"}
	}
	if m, err = decode(p[:n]); err != nil {
		return message{}, -1, err
	}
	if len(fds) == 1 {
		if !slices.Contains(may, m.kind) {
			return message{}, -1, &PeerError{"kind of a message with a descriptor", uint64(m.kind), "2 in answer to hello, 7 or 13 later"}
		}
		fd = fds[0]
	}
	return m, fd, nil
}

// descriptorsIn returns the file descriptors in control messages.
func descriptorsIn(oob []byte) (fds []int, err error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		if messages[i].Header.Type != unix.SCM_RIGHTS {
			continue
		}
		more, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return fds, err
		}
		fds = append(fds, more...)
	}
	return fds, nil
}

// samePeer reports whether the process at the other end belongs to this one's
// user, or to root.
func (c *conn) samePeer() bool {
	var who *unix.Ucred
	var err error
	if cerr := c.raw.Control(func(fd uintptr) {
		who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); cerr != nil || err != nil {
		return false
	}
	return who.Uid == 0 || who.Uid == uint32(os.Geteuid())
}

func (c *conn) close() { _ = c.c.Close() }
