package qtest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"
)

// link is the connection to QEMU's qtest server: one request at a time, and the
// answers come in order.
type link struct {
	conn    net.Conn
	in      *bufio.Reader
	timeout time.Duration
	explain func(error) error // finds the cause of an error of conn
	// turn is held by the call that writes and reads. What follows belongs to it.
	turn    chan struct{}
	line    []byte // the beginning of a line of which the rest has not come yet
	pending int    // answers that have not come yet, to requests that were given up too

	mu    sync.Mutex
	cause error
	gone  chan struct{} // closed when the connection is of no use any more
}

func newLink(conn net.Conn, timeout time.Duration) *link {
	return &link{conn: conn, in: bufio.NewReader(conn), timeout: timeout, explain: func(err error) error { return err }, turn: make(chan struct{}, 1), gone: make(chan struct{})}
}

// fail ends the connection. The first cause stays.
func (l *link) fail(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = cause
		close(l.gone)
		// Requests that wait end; the descriptor is closed when the machine is.
		_ = l.conn.SetDeadline(time.Unix(1, 0))
	}
	return l.cause
}

// lost returns why the connection is of no use any more, or nil.
func (l *link) lost() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// ask sends a request and returns the value of its answer. If ctx ends before, the
// request may still be carried out. A refusal leaves the connection as it is; after
// every other error it is lost.
func (l *link) ask(ctx context.Context, format string, args ...any) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return "", ctx.Err()
	}
	defer func() { <-l.turn }()
	if err := l.allow(); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(l.conn, format+"\n", args...); err != nil {
		return "", l.fail(fmt.Errorf("send to QEMU: %w", l.explain(err)))
	}
	l.pending++
	return l.collect(ctx)
}

// allow gives the call that has the turn its time.
func (l *link) allow() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return l.cause
	}
	return l.conn.SetDeadline(time.Now().Add(l.timeout))
}

// collect reads all answers that are due and returns the last one.
func (l *link) collect(ctx context.Context) (value string, err error) {
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = l.conn.SetReadDeadline(time.Unix(1, 0))
	})
	defer func() {
		if !stop() {
			<-interrupted // or it would end the next request
		}
	}()
	for l.pending > 0 {
		line, err := l.readLine()
		switch {
		case err != nil && ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded) && l.lost() == nil:
			return "", ctx.Err()
		case err != nil:
			return "", l.fail(fmt.Errorf("wait for QEMU: %w", l.explain(err)))
		}
		value, answer, err := parseLine(line)
		var refusal *AnswerError
		if err != nil && (l.pending > 1 || !errors.As(err, &refusal)) {
			return "", l.fail(err)
		}
		if answer {
			l.pending--
		}
		if l.pending == 0 {
			return value, err
		}
	}
	return "", nil
}

// readLine returns a line without its end. Called again after an error it goes on
// where it was.
func (l *link) readLine() ([]byte, error) {
	for {
		c, err := l.in.ReadByte()
		switch {
		case err != nil:
			return nil, err
		case c == '\n':
			line := l.line
			l.line = l.line[:0]
			return line, nil
		case len(l.line) == maxLine:
			return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrGarbage, maxLine)
		}
		l.line = append(l.line, c)
	}
}
