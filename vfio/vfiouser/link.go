package vfiouser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// ServerError says that the server refuses a request.
type ServerError struct {
	Command protocol.Command
	Errno   syscall.Errno
}

func (e *ServerError) Error() string {
	return fmt.Sprintf("server refuses %v: %v", e.Command, e.Errno)
}

// Unwrap returns the server's errno.
func (e *ServerError) Unwrap() error { return e.Errno }

// What a client takes and tells the server about.
const (
	clientMaxFDs     = 16
	clientMaxData    = 1 << 20
	clientMaxPayload = protocol.RegionAccessSize + clientMaxData
	// grace is the time that the reply to a request is waited for when the context has
	// ended: one that has been sent is soon answered, and then it is known what has
	// become of it.
	grace = 100 * time.Millisecond
)

// link is a client's connection. A goroutine receives; any may call.
type link struct {
	conn    *protocol.Conn
	sent    *messageCounters
	serve   func(m *protocol.Message) (reply, error) // requests of the server
	timeout time.Duration

	mu      sync.Mutex
	waiting map[uint16]*call
	nextID  uint16
	cause   error // of gone

	// gone is closed when the connection is of no use any more, done when the
	// goroutine has ended.
	gone, done chan struct{}
}

// call is a request that has no reply yet.
type call struct {
	command protocol.Command
	// abandoned: the caller waits no more. The ID stays taken until the reply comes.
	abandoned bool
	// result is there when done is closed.
	result result
	done   chan struct{}
	// deadline ends the connection.
	deadline *time.Timer
}

type result struct {
	payload []byte
	fds     []int
	err     error
}

// newLink takes conn over. When the connection ends, lost is called, once, from
// another goroutine.
func newLink(conn *protocol.Conn, timeout time.Duration, sent *messageCounters,
	serve func(m *protocol.Message) (reply, error), lost func()) *link {
	l := &link{conn: conn, sent: sent, serve: serve, timeout: timeout, waiting: map[uint16]*call{},
		gone: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.fail(l.receive())
		lost()
	}()
	return l
}

// fail ends the connection because of cause.
func (l *link) fail(cause error) {
	if cause == io.EOF { // which would say that a connection of the NIC has ended in order
		cause = unix.ECONNRESET
	}
	l.mu.Lock()
	first := l.cause == nil
	if first {
		l.cause = cause
		close(l.gone)
		for _, c := range l.waiting {
			c.deadline.Stop()
		}
	}
	l.mu.Unlock()
	if first {
		l.conn.Close()
	}
}

// lost reports whether the connection has ended.
func (l *link) lost() bool {
	select {
	case <-l.gone:
		return true
	default:
		return false
	}
}

// err says that, and why, the connection has ended.
func (l *link) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Errorf("%w: connection to the server has ended: %w", vfio.ErrDeviceGone, l.cause)
}

// do sends a request and waits for the reply, whose file descriptors are the
// caller's. It fails with a *ServerError, vfio.ErrDeviceGone or the context's
// error. A request without reply for as long as the link's timeout is the last:
// vfio.ErrDeviceGone then comes with os.ErrDeadlineExceeded, whether a caller still
// waits for that reply or not.
func (l *link) do(ctx context.Context, command protocol.Command, payload []byte, fds ...int) ([]byte, []int, error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	id, c, err := l.begin(command)
	if err != nil {
		return nil, nil, err
	}
	l.sent.add(command)
	if err := l.conn.Send(protocol.Header{ID: id, Command: command}, payload, fds, time.Now().Add(l.timeout)); err != nil {
		l.fail(err)
		return nil, nil, l.err()
	}
	err = l.await(ctx, c)
	if err != nil && l.abandon(id, c) {
		return nil, nil, err
	}
	<-c.done // it has come, or is about to
	return c.result.payload, c.result.fds, c.result.err
}

// ask is do for requests whose reply brings no descriptors.
func (l *link) ask(ctx context.Context, command protocol.Command, payload []byte, fds ...int) ([]byte, error) {
	p, got, err := l.do(ctx, command, payload, fds...)
	passedfd.Close(got...)
	return p, err
}

// await waits for the reply to c, or fails with the reason why there is none.
func (l *link) await(ctx context.Context, c *call) error {
	select {
	case <-c.done:
		return nil
	case <-l.gone:
		return l.err()
	case <-ctx.Done():
	}
	select {
	case <-c.done:
		return nil
	case <-l.gone:
		return l.err()
	case <-time.After(grace):
		return ctx.Err()
	}
}

// begin finds an ID for a request.
func (l *link) begin(command protocol.Command) (uint16, *call, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return 0, nil, fmt.Errorf("%w: connection to the server has ended: %w", vfio.ErrDeviceGone, l.cause)
	}
	if len(l.waiting) > 1<<15 {
		return 0, nil, fmt.Errorf("%d requests are under way: %w", len(l.waiting), unix.EAGAIN)
	}
	for l.waiting[l.nextID] != nil {
		l.nextID++
	}
	id := l.nextID
	l.nextID++
	c := &call{command: command, done: make(chan struct{})}
	c.deadline = time.AfterFunc(l.timeout, func() { l.expire(id, c) })
	l.waiting[id] = c
	return id, c, nil
}

// abandon notes that the caller of c waits no more. It reports false if the reply is
// there, or is about to be: it brings descriptors, which the caller has to take.
func (l *link) abandon(id uint16, c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[id] != c {
		return false
	}
	c.abandoned = true
	return true
}

// expire ends the connection if there is no reply to c.
func (l *link) expire(id uint16, c *call) {
	l.mu.Lock()
	waits := l.waiting[id] == c
	l.mu.Unlock()
	if waits {
		l.fail(fmt.Errorf("%w: no reply to %v within %v", os.ErrDeadlineExceeded, c.command, l.timeout))
	}
}

// receive takes messages until the connection ends, and says why it did.
func (l *link) receive() error {
	for {
		m, err := l.conn.Receive()
		var bad *protocol.Error
		if err != nil && !errors.As(err, &bad) {
			return err
		}
		if m.Header.IsReply() {
			l.finish(&m, err)
			continue
		}
		var r reply
		if err == nil {
			r, err = l.serve(&m)
		}
		if err := passedfd.Close(m.FDs...); err != nil {
			return err
		}
		if err := l.answer(m.Header, r, err); err != nil {
			return err
		}
	}
}

// finish hands a reply, bad if err is not nil, to the one who waits for it. One
// without a request is dropped.
func (l *link) finish(m *protocol.Message, err error) {
	l.mu.Lock()
	c := l.waiting[m.Header.ID]
	if c != nil {
		delete(l.waiting, m.Header.ID)
		c.deadline.Stop()
		if c.abandoned {
			c = nil
		}
	}
	l.mu.Unlock()
	if c == nil {
		passedfd.Close(m.FDs...)
		return
	}
	r := result{err: err}
	failure := m.Header.Failure()
	switch {
	case err != nil:
	case failure != nil:
		var errno syscall.Errno
		errors.As(failure, &errno)
		r.err = &ServerError{c.command, errno}
	case m.Header.Command != c.command:
		r.err = &protocol.Error{Message: "header", Field: "command", Value: uint64(m.Header.Command),
			Why: "the reply is to " + c.command.String(), Errno: unix.EPROTO}
	}
	if r.err != nil {
		passedfd.Close(m.FDs...)
	} else {
		r.payload = append([]byte(nil), m.Payload...)
		r.fds = m.FDs
	}
	c.result = r
	close(c.done)
}

// answer replies to a request of the server.
func (l *link) answer(h protocol.Header, r reply, err error) error {
	if !h.WantsReply() {
		return nil
	}
	out := protocol.Header{ID: h.ID, Command: h.Command, Flags: protocol.FlagReply}
	if err != nil {
		out.Flags |= protocol.FlagError
		out.Errno = uint32(errnoOf(err))
		r = reply{}
	}
	return l.conn.Send(out, r.payload, nil, time.Now().Add(l.timeout))
}

// clientCounters count the messages of both directions.
type clientCounters struct {
	sent     messageCounters
	requests atomic.Uint64 // of the server
}
