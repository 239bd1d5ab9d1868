package memif

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// talk is a conversation with a peer while a connection is made.
type talk struct {
	port *Port
	conn *protocol.Conn
	// peer is the peer's own name.
	peer string
	// ends is when the connection must have been made.
	ends time.Time
}

// patientSteps is the number of steps that may take as long as a step may: a peer that is
// slow at each could keep others away for minutes.
const patientSteps = 4

func (p *Port) newTalk(conn *protocol.Conn, peer string) *talk {
	return &talk{port: p, conn: conn, peer: peer, ends: time.Now().Add(patientSteps * p.options.Timeout)}
}

// receive waits for the next message, for as long as a step may take. It
// returns the file descriptor that came with it, or -1. A peer that
// disconnects, goes away or takes too long is an error, and so is the port's
// own end.
func (t *talk) receive() (protocol.Body, int, error) {
	deadline := time.Now().Add(t.port.options.Timeout)
	if deadline.After(t.ends) {
		deadline = t.ends
	}
	for {
		body, fd, err := t.conn.Receive()
		if !errors.Is(err, protocol.ErrAgain) {
			return judge(body, fd, err)
		}
		if err := t.port.await(t.conn, deadline); err != nil {
			return nil, -1, err
		}
	}
}

// judge gives what Receive returned the errors of this package.
func judge(body protocol.Body, fd int, err error) (protocol.Body, int, error) {
	var bad *protocol.Error
	switch {
	case errors.As(err, &bad):
		return nil, -1, fmt.Errorf("%w: %w", ErrMessage, err)
	case errors.Is(err, io.EOF):
		return nil, -1, ends.ErrGone
	case err != nil:
		return nil, -1, fmt.Errorf("%w: %w", ends.ErrGone, err)
	}
	if d, ok := body.(protocol.Disconnect); ok {
		return nil, -1, fmt.Errorf("%w: it says %q, code %d", ErrRefused, d.Reason, d.Code)
	}
	return body, fd, nil
}

// send sends a message. A peer that does not read has no room for it.
func (t *talk) send(body protocol.Body, fd int) error {
	err := t.conn.Send(body, fd)
	switch {
	case errors.Is(err, protocol.ErrAgain):
		return fmt.Errorf("%w: it does not read", ErrTimeout)
	case err != nil:
		return fmt.Errorf("%w: %w", ends.ErrGone, err)
	}
	return nil
}

// unexpected is a message at the wrong time. It closes its file descriptor.
func unexpected(body protocol.Body, fd int, want string) error {
	closeFile(fd)
	return fmt.Errorf("%w: %s where %s should come", ErrMessage, protocol.Encode(body).Type(), want)
}

func closeFile(fd int) {
	if fd >= 0 {
		_ = passedfd.Close(fd) // the connection ends, or fd is ours, or memory
	}
}

// expect waits for a message without file descriptor of one type.
func expect[T protocol.Body](t *talk) (T, error) {
	var want T
	body, fd, err := t.receive()
	if err != nil {
		return want, err
	}
	if got, ok := body.(T); ok {
		return got, nil
	}
	return want, unexpected(body, fd, protocol.Encode(want).Type().String())
}

// ask sends a message that the peer acknowledges.
func (t *talk) ask(body protocol.Body, fd int) error {
	if err := t.send(body, fd); err != nil {
		return err
	}
	_, err := expect[protocol.Ack](t)
	return err
}

// reasonFor is the text for a peer when a connection ends with err; empty if
// there is nothing to tell.
func reasonFor(err error) string {
	var message *protocol.Error
	var violation *ring.Violation
	switch {
	case errors.As(err, &message):
		return message.Error()
	case errors.As(err, &violation):
		return violation.Error()
	case errors.Is(err, ErrUnplugged):
		return "interface is down"
	case errors.Is(err, ends.ErrGone), errors.Is(err, ErrRefused):
		return ""
	}
	return err.Error()
}

// disconnect closes the connection. It first sends a DISCONNECT with the reason,
// unless the peer is gone or the reason came from the peer.
func (t *talk) disconnect(err error) {
	if text := reasonFor(err); text != "" {
		_ = t.conn.Send(protocol.Disconnect{Reason: text}, -1)
	}
	t.conn.Close()
}

// await waits until the peer has sent something or has gone, the deadline
// passes, or the port is called, because it is to end or the plug was pulled.
func (p *Port) await(conn *protocol.Conn, deadline time.Time) error {
	fds := []unix.PollFd{{Fd: int32(p.bell.fd), Events: unix.POLLIN}}
	if conn != nil {
		fds = append(fds, unix.PollFd{Fd: int32(conn.FD()), Events: unix.POLLIN})
	}
	if err := await(fds, deadline); err != nil {
		return err
	}
	if fds[0].Revents != 0 {
		p.bell.drain()
		if !p.plugged() {
			return ErrUnplugged
		}
		return nil
	}
	if conn != nil && fds[1].Revents == 0 {
		return ErrTimeout
	}
	return nil
}
