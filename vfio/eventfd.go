package vfio

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Eventfd is a Linux event descriptor, through which a device signals an
// interrupt vector. Waiting blocks the goroutine only, not a thread. Methods
// may be called from several goroutines.
type Eventfd struct {
	fd   int
	file *os.File
	conn syscall.RawConn
	// turn is held by the goroutine that waits in the poller: the file's read
	// deadline, with which a context interrupts it, is one for all.
	turn   chan struct{}
	closed chan struct{}
	once   sync.Once
}

// NewEventfd makes an event descriptor that is not signalled.
func NewEventfd() (*Eventfd, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, &Error{Op: "create eventfd", Err: err, Hint: "check ulimit -n"}
	}
	file := os.NewFile(uintptr(fd), "eventfd")
	// Fails if the runtime cannot poll the descriptor.
	if err := file.SetReadDeadline(time.Time{}); err != nil {
		return nil, &Error{Op: "create eventfd", Err: errors.Join(err, file.Close())}
	}
	conn, err := file.SyscallConn()
	if err != nil {
		return nil, &Error{Op: "create eventfd", Err: errors.Join(err, file.Close())}
	}
	return &Eventfd{fd: fd, file: file, conn: conn, turn: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}

// FD returns the descriptor, for Device.SetIRQs; -1 after Close. It stays with
// the Eventfd.
func (e *Eventfd) FD() int {
	if e.isClosed() {
		return -1
	}
	return e.fd
}

// Signal does what the device does: it wakes one waiter, now or when it comes.
// Several signals before a wait count as one.
func (e *Eventfd) Signal() error {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	var err error
	cerr := e.conn.Control(func(fd uintptr) { _, err = unix.Write(int(fd), one[:]) })
	switch {
	case cerr != nil:
		return e.fail("signal eventfd", cerr)
	case err != nil && !errors.Is(err, unix.EAGAIN): // EAGAIN: it is signalled as much as can be
		return e.fail("signal eventfd", err)
	}
	return nil
}

// Wait returns when the descriptor has been signalled, and takes the signal. It
// fails with the context's error, or with ErrClosed when Close is called. A
// context that is already over takes no signal.
func (e *Eventfd) Wait(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return e.fail("wait for eventfd", err)
	}
	select {
	case e.turn <- struct{}{}:
	case <-ctx.Done():
		return e.fail("wait for eventfd", ctx.Err())
	case <-e.closed:
		return e.fail("wait for eventfd", ErrClosed)
	}
	defer func() { <-e.turn }()

	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		// The error can only be that the file is closed, which ends the read too.
		_ = e.file.SetReadDeadline(time.Unix(1, 0))
	})
	var err error
	perr := e.conn.Read(func(fd uintptr) bool {
		err = readEventfd(int(fd))
		return !errors.Is(err, unix.EAGAIN)
	})
	if !stop() {
		<-interrupted
		_ = e.file.SetReadDeadline(time.Time{})
	}
	switch {
	case perr == nil && err == nil:
		return nil
	case perr == nil:
		return e.fail("wait for eventfd", err)
	case errors.Is(perr, os.ErrDeadlineExceeded):
		return e.fail("wait for eventfd", ctx.Err())
	}
	return e.fail("wait for eventfd", perr)
}

// Drain takes the signal, if there is one.
func (e *Eventfd) Drain() error {
	var err error
	if cerr := e.conn.Control(func(fd uintptr) { err = readEventfd(int(fd)) }); cerr != nil {
		return e.fail("drain eventfd", cerr)
	}
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		return e.fail("drain eventfd", err)
	}
	return nil
}

func readEventfd(fd int) error {
	var count [8]byte
	for {
		_, err := unix.Read(fd, count[:])
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Close closes the descriptor; goroutines in Wait return ErrClosed. Closing
// again does nothing.
func (e *Eventfd) Close() error {
	var err error
	e.once.Do(func() {
		close(e.closed)
		err = e.file.Close()
	})
	if err != nil {
		return &Error{Op: "close eventfd", Err: err}
	}
	return nil
}

func (e *Eventfd) isClosed() bool {
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}

func (e *Eventfd) fail(op string, err error) error {
	if e.isClosed() {
		err = ErrClosed
	}
	return &Error{Op: op, Err: err}
}
