package unixsocket

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

// ErrConn: a descriptor is no connection of the kind that it has to be.
var ErrConn = errors.New("it is no connection of the kind that it has to be")

// Conn carries messages, and descriptors with them (SCM_RIGHTS, unix(7)). One goroutine may receive
// while others send.
type Conn struct {
	*net.UnixConn
	control []byte // of the receiver
	sending sync.Mutex

	mu   sync.Mutex // of deadlines
	deaf bool       // Receive fails
	mute bool       // Send fails, too
}

// NewConn makes one of a connection, which it owns.
func NewConn(c *net.UnixConn) *Conn { return &Conn{UnixConn: c, control: passedfd.NewControl()} }

// TakeConn makes a connection of a descriptor that another process has passed: of a socket of a kind, such as
// SOCK_SEQPACKET. It owns the descriptor, also if it fails. Errors wrap ErrConn, or are those of net.FileConn.
func TakeConn(fd, kind int) (*net.UnixConn, error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil || domain != unix.AF_UNIX || !isSocket(fd, kind) {
		_ = passedfd.Close(fd)
		return nil, fmt.Errorf("descriptor %d: %w", fd, ErrConn)
	}
	c, err := adopt(fd, net.FileConn)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// isSocket reports whether a descriptor is a socket of a kind.
func isSocket(fd, kind int) bool {
	got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	return err == nil && got == kind
}

// adopt makes a connection or listener of a descriptor, in whose place comes a duplicate.
func adopt[T any](fd int, from func(*os.File) (T, error)) (T, error) {
	unix.CloseOnExec(fd)
	file := os.NewFile(uintptr(fd), "socket")
	made, err := from(file)
	return made, errors.Join(err, file.Close())
}

// Send sends a message, with duplicates of descriptors. It fails if the peer has not taken all of it by a time.
func (c *Conn) Send(p []byte, until time.Time, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	c.sending.Lock()
	defer c.sending.Unlock()
	if err := c.limit(&c.mute, c.SetWriteDeadline, until); err != nil {
		return err
	}
	n, _, err := c.WriteMsgUnix(p, rights, nil)
	if err == nil && n < len(p) { // of a stream; the descriptors have gone with the first bytes
		_, err = c.Write(p[n:])
	}
	return err
}

// Receive waits until a time, or for ever if that is zero, for a message, of a stream for the next bytes. cut says that
// there was more than p holds, or that descriptors were lost. The descriptors are the caller's. It fails with
// io.EOF once the peer has closed.
func (c *Conn) Receive(p []byte, until time.Time) (n int, fds []int, cut bool, err error) {
	if err := c.limit(&c.deaf, c.SetReadDeadline, until); err != nil {
		return 0, nil, false, err
	}
	n, length, flags, _, err := c.ReadMsgUnix(p, c.control)
	fds = passedfd.Parse(c.control[:length])
	if err == nil && n == 0 && len(fds) == 0 || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		err = io.EOF
	}
	return n, fds, flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0, err
}

// Interrupt has Receive fail with os.ErrDeadlineExceeded from now on, until Continue, and Send, too, if asked to.
func (c *Conn) Interrupt(sends bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf = true
	_ = c.SetReadDeadline(time.Unix(1, 0))
	if sends {
		c.mute = true
		_ = c.SetWriteDeadline(time.Unix(1, 0))
	}
}

// Continue ends Interrupt.
func (c *Conn) Continue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deaf, c.mute = false, false
}

// limit sets a deadline, unless what it is of is interrupted.
func (c *Conn) limit(interrupted *bool, set func(time.Time) error, until time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if *interrupted {
		return os.ErrDeadlineExceeded
	}
	return set(until)
}

// Close ends the connection, also for processes to which it was passed. It takes no longer than passedfd.Timeout,
// whatever the peer has sent.
func (c *Conn) Close() { passedfd.CloseConn(c.UnixConn) }

// Leave closes the connection here, and not for a process to which it was passed.
func (c *Conn) Leave() { _ = c.UnixConn.Close() }
