package protocol

import (
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
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
	c          *unixsocket.Conn
	maxPayload uint32
	maxFDs     int

	// Of the receiver.
	header  [HeaderSize]byte
	payload []byte
	until   time.Time

	mu  sync.Mutex // of senders
	out []byte
}

// NewConn makes a connection of c, which it owns from then on. Messages with
// more than maxPayload bytes of payload or maxFDs file descriptors are refused
// by Receive.
func NewConn(c *net.UnixConn, maxPayload uint32, maxFDs int) *Conn {
	return &Conn{c: unixsocket.NewConn(c), maxPayload: maxPayload, maxFDs: maxFDs}
}

// Close closes the socket. A Receive or Send that is under way fails. It takes no
// longer than passedfd.Timeout, whatever the peer has sent.
func (c *Conn) Close() { c.c.Close() }

// SetReceiveDeadline has Receive fail with os.ErrDeadlineExceeded after t. It is the receiver's.
func (c *Conn) SetReceiveDeadline(t time.Time) { c.until = t }

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
		n, fds, truncated, err := in.conn.c.Receive(b[got:], in.conn.until)
		if len(fds) > 0 || truncated {
			if err := in.take(fds, truncated); err != nil {
				return err
			}
		}
		if got > 0 {
			err = noEOF(err)
		}
		if err != nil {
			return err
		}
		got += n
	}
	return nil
}

// take takes file descriptors, unless there are too many.
func (in *incoming) take(fds []int, truncated bool) error {
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
	return c.c.Send(c.out, deadline, fds...) // peers expect the header in one piece
}
