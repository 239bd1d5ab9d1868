package qtest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// link is the connection to QEMU's qtest server: one request at a time.
type link struct {
	conn    net.Conn
	in      *bufio.Reader
	timeout time.Duration
	explain func(error) error // finds the cause of an error of conn
	turn    sync.Mutex        // held by the call that writes and reads

	mu    sync.Mutex
	cause error // why the connection is of no use any more
}

func newLink(conn net.Conn, timeout time.Duration) *link {
	return &link{conn: conn, in: bufio.NewReaderSize(conn, maxLine), timeout: timeout, explain: func(err error) error { return err }}
}

// fail ends the connection. The first cause stays.
func (l *link) fail(cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause == nil {
		l.cause = cause
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

// ask sends a request and returns the value of its answer. A refusal leaves the connection as it is; after
// every other error it is lost.
func (l *link) ask(format string, args ...any) (string, error) {
	l.turn.Lock()
	defer l.turn.Unlock()
	if err := l.allow(); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(l.conn, format+"\n", args...); err != nil {
		return "", l.fail(fmt.Errorf("send to QEMU: %w", l.explain(err)))
	}
	for {
		line, err := l.in.ReadSlice('\n')
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return "", l.fail(fmt.Errorf("%w: a line of more than %d bytes", ErrGarbage, maxLine))
		case err != nil:
			return "", l.fail(fmt.Errorf("wait for QEMU: %w", l.explain(err)))
		}
		value, answer, err := parseLine(line[:len(line)-1])
		if err != nil && !errors.As(err, new(*AnswerError)) {
			return "", l.fail(err)
		}
		if answer {
			return value, err
		}
	}
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
