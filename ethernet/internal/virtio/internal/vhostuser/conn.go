package vhostuser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/vfio"
)

// conn is a connection to a back end. Requests are made by one goroutine at a time; another
// one receives, which notices the end of the back end.
type conn struct {
	c       *unixsocket.Conn
	timeout time.Duration
	alert   func() // called when it ends
	// ack: the back end answers each request that asks for it.
	ack bool

	mu      sync.Mutex
	waiting request // what a reply is waited for; 0: nothing
	cause   error   // of gone

	replies chan []byte
	// gone is closed when the connection is of no use any more, done when the goroutine
	// has ended.
	gone, done chan struct{}
}

// dial connects to the back end at a path.
func dial(ctx context.Context, path string, timeout time.Duration, alert func()) (*conn, error) {
	d := net.Dialer{Timeout: timeout}
	c, err := d.DialContext(ctx, "unix", path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		err = fmt.Errorf("%w: start the back end first, or correct the path", err)
	}
	if err != nil {
		return nil, err
	}
	l := &conn{c: unixsocket.NewConn(c.(*net.UnixConn)), timeout: timeout, alert: alert, replies: make(chan []byte, 1), gone: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.fail(l.receive())
	}()
	return l, nil
}

// fail ends the connection because of cause.
func (l *conn) fail(cause error) {
	l.mu.Lock()
	first := l.cause == nil
	if first {
		l.cause = cause
		close(l.gone)
	}
	l.mu.Unlock()
	if first {
		l.c.Close()
		l.alert()
	}
}

// err says that, and why, the connection has ended; nil if it has not.
func (l *conn) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		return nil
	}
	return fmt.Errorf("%w: the connection to the back end has ended: %w", vfio.ErrDeviceGone, l.cause)
}

// close ends the connection.
func (l *conn) close() {
	l.fail(vfio.ErrClosed)
	<-l.done
}

// receive takes replies until the connection ends, and says why it did.
func (l *conn) receive() error {
	for {
		var header [headerSize]byte
		if err := l.read(header[:]); err != nil {
			return err
		}
		l.mu.Lock()
		r := l.waiting
		l.waiting = 0
		l.mu.Unlock()
		if r == 0 {
			return fmt.Errorf("%w: a message without a request: % x", ethernet.ErrProtocol, header)
		}
		size, err := checkHeader(&header, r)
		if err != nil {
			return err
		}
		payload := make([]byte, size)
		if err := l.read(payload); err != nil {
			return err
		}
		l.replies <- payload
	}
}

// read fills b. File descriptors, which nothing here brings, end the connection.
func (l *conn) read(b []byte) error {
	for len(b) > 0 {
		n, fds, _, err := l.c.Receive(b, time.Time{})
		if len(fds) > 0 {
			return errors.Join(fmt.Errorf("%w: %d file descriptors with a reply", ethernet.ErrProtocol, len(fds)), passedfd.Close(fds...))
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// send sends a request.
func (l *conn) send(ctx context.Context, r request, flags uint32, payload []byte, fds []int) error {
	if err := errors.Join(ctx.Err(), l.err()); err != nil {
		return err
	}
	deadline := time.Now().Add(l.timeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	err := l.c.Send(append(appendHeader(nil, r, flags, len(payload)), payload...), deadline, fds...)
	if err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = fmt.Errorf("%w: %v is not taken within %v", ethernet.ErrNotReady, r, l.timeout)
		}
		l.fail(err)
		return l.err()
	}
	return nil
}

// ask sends a request and returns the payload of the reply. A back end that does not
// answer in time loses the connection: its reply could not be told from the next.
func (l *conn) ask(ctx context.Context, r request, flags uint32, payload []byte, fds ...int) ([]byte, error) {
	l.mu.Lock()
	l.waiting = r
	l.mu.Unlock()
	if err := l.send(ctx, r, flags, payload, fds); err != nil {
		return nil, err
	}
	timer := time.NewTimer(l.timeout)
	defer timer.Stop()
	select {
	case reply := <-l.replies:
		return reply, nil
	case <-l.gone:
		return nil, l.err()
	case <-ctx.Done():
		l.fail(ctx.Err())
		return nil, ctx.Err()
	case <-timer.C:
		l.fail(fmt.Errorf("%w: no reply to %v within %v", ethernet.ErrNotReady, r, l.timeout))
		return nil, l.err()
	}
}

// get asks for a number.
func (l *conn) get(ctx context.Context, r request) (uint64, error) {
	p, err := l.ask(ctx, r, 0, nil)
	if err == nil {
		err = checkSize(r, p, 8)
	}
	if err != nil {
		return 0, err
	}
	return order.Uint64(p), nil
}

// set tells something, and waits until the back end has done it if it can say so.
func (l *conn) set(ctx context.Context, r request, payload []byte, fds ...int) error {
	if !l.ack {
		return l.send(ctx, r, 0, payload, fds)
	}
	p, err := l.ask(ctx, r, flagNeedReply, payload, fds...)
	if err == nil {
		err = checkSize(r, p, 8)
	}
	if err != nil {
		return err
	}
	if v := order.Uint64(p); v != 0 {
		return fmt.Errorf("%w: the back end refuses %v (%d)", ethernet.ErrNotSupported, r, int64(v))
	}
	return nil
}
