package protocol

import (
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

// Message is a message as it came.
type Message struct {
	Header Header
	// Payload follows the header. It is valid until the next Receive.
	Payload []byte
	// FDs are the file descriptors that came with it. Who receives the message
	// closes them, see passedfd.Close.
	FDs []int
}

// Conn carries messages over a UNIX stream socket. One goroutine receives; any
// number may send.
type Conn struct {
	c          *net.UnixConn
	maxPayload uint32
	maxFDs     int

	// Of the receiver.
	header  [HeaderSize]byte
	payload []byte
	rights  []byte

	mu  sync.Mutex // of senders
	out []byte
}

// NewConn makes a connection of c, which it owns from then on. Messages with
// more than maxPayload bytes of payload or maxFDs file descriptors are refused
// by Receive.
func NewConn(c *net.UnixConn, maxPayload uint32, maxFDs int) *Conn {
	return &Conn{c: c, maxPayload: maxPayload, maxFDs: maxFDs, rights: passedfd.NewControl()}
}

// Close closes the socket. A Receive or Send that is under way fails. It takes no
// longer than passedfd.Timeout, whatever the peer has sent.
func (c *Conn) Close() { passedfd.CloseConn(c.c) }

// SetReceiveDeadline has Receive fail with os.ErrDeadlineExceeded after t.
func (c *Conn) SetReceiveDeadline(t time.Time) error { return c.c.SetReadDeadline(t) }

// Receive returns the next message. If its error is an *Error then only that
// message is bad: its header is returned, all of it has been read and its file
// descriptors are closed. After any other error nothing more can be received;
// it is io.EOF if the peer closed the connection between two messages.
func (c *Conn) Receive() (Message, error) {
	in := incoming{conn: c}
	m, err := in.message()
	if err != nil {
		if full := passedfd.Close(in.fds...); full != nil {
			err = full
		}
		return m, err
	}
	m.FDs = in.fds
	return m, nil
}

// incoming is a message that is being received.
type incoming struct {
	conn *Conn
	fds  []int
	// refused says what is wrong with the file descriptors.
	refused *Error
}

func (in *incoming) message() (m Message, err error) {
	c := in.conn
	if err := in.read(c.header[:]); err != nil {
		return m, err
	}
	m.Header, err = DecodeHeader(&c.header)
	size := max(m.Header.Size, HeaderSize) - HeaderSize
	if err == nil && size > c.maxPayload {
		err = &Error{Message: m.Header.Command.String(), Field: "size", Value: uint64(m.Header.Size),
			Why: fmt.Sprintf("want at most %#x", HeaderSize+c.maxPayload), Errno: syscall.EINVAL}
	}
	if err != nil {
		if serr := in.skip(size); serr != nil {
			return m, serr
		}
		return m, err
	}
	if uint32(cap(c.payload)) < size {
		c.payload = make([]byte, size)
	}
	m.Payload = c.payload[:size]
	if err := in.read(m.Payload); err != nil {
		return m, noEOF(err)
	}
	if in.refused != nil {
		in.refused.Message = m.Header.Command.String()
		return m, in.refused
	}
	return m, nil
}

// skip reads size bytes and forgets them.
func (in *incoming) skip(size uint32) error {
	var scratch [4096]byte
	for size > 0 {
		n := min(size, uint32(len(scratch)))
		if err := in.read(scratch[:n]); err != nil {
			return noEOF(err)
		}
		size -= n
	}
	return nil
}

// read fills b. A stream socket may deliver it in any pieces, each with file
// descriptors.
func (in *incoming) read(b []byte) error {
	for got := 0; got < len(b); {
		n, rights, flags, _, err := in.conn.c.ReadMsgUnix(b[got:], in.conn.rights)
		if rights > 0 || flags&unix.MSG_CTRUNC != 0 {
			if err := in.take(in.conn.rights[:rights], flags&unix.MSG_CTRUNC != 0); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF) && got == 0:
			return io.EOF
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
		got += n
	}
	return nil
}

// take takes the file descriptors in control messages, unless there are too
// many.
func (in *incoming) take(rights []byte, truncated bool) error {
	fds := passedfd.Parse(rights)
	if in.refused == nil && !truncated && len(in.fds)+len(fds) <= in.conn.maxFDs {
		in.fds = append(in.fds, fds...)
		return nil
	}
	in.refused = &Error{Field: "number of file descriptors", Value: uint64(len(in.fds) + len(fds)),
		Why: fmt.Sprintf("want at most %d", in.conn.maxFDs), Errno: syscall.EINVAL}
	if truncated {
		in.refused.Why, in.refused.Errno = "there were more, which this process could not open", syscall.EMFILE
	}
	return passedfd.Close(fds...)
}

// noEOF is for the middle of a message, where no message may end.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// Send sends a message: h, whose Size it fills in, payload and duplicates of
// fds. After an error nothing more can be sent: the peer may have got a part of
// the message. It fails with os.ErrDeadlineExceeded if the peer has not taken
// the message by the deadline.
func (c *Conn) Send(h Header, payload []byte, fds []int, deadline time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.Size = uint32(HeaderSize + len(payload))
	c.out = append(h.Append(c.out[:0]), payload...)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if err := c.c.SetWriteDeadline(deadline); err != nil {
		return err
	}
	// Peers expect the header in one piece.
	n, _, err := c.c.WriteMsgUnix(c.out, rights, nil)
	if err == nil && n < len(c.out) {
		_, err = c.c.Write(c.out[n:])
	}
	return err
}
