package passedfd

import (
	"errors"
	"io"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// Timeout is the time that a caller waits for a close, at most.
	Timeout = 100 * time.Millisecond
	// maxClosers is the number of threads that wait in closes of a kind at a time.
	maxClosers = 4
	// maxHeld is the number of descriptors that may wait to be closed before Full says that
	// it is enough.
	maxHeld = 1024
)

// ErrFull: so many descriptors wait to be closed that no more should be taken.
var ErrFull = errors.New("too many descriptors wait to be closed")

// Close closes descriptors that another process has passed. Those whose close
// waits, although all has been done that it should not, are left to others, and
// closed some time later. It fails with ErrFull if these are such ones, and too
// many: the peer that passed them should be heard no longer.
func Close(fds ...int) error {
	var rest []int
	for _, fd := range fds {
		if fd < 0 || harmless(fd) {
			_ = unix.Close(fd)
		} else {
			rest = append(rest, fd)
		}
	}
	if len(rest) == 0 {
		return nil
	}
	files.do(len(rest), func() { closeAll(rest) })
	if Full() {
		return ErrFull
	}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		disarm(fd, closeAll)
		// Nothing is lost if that fails: nothing was written.
		_ = unix.Close(fd)
	}
}

// disarmOwn disarms a socket of ours. What it holds is for files to close.
func disarmOwn(fd int) { disarm(fd, func(fds []int) { _ = Close(fds...) }) }

// CloseSocket closes a UNIX socket: a connection, or one that listens. What its
// peers have passed and that were not received would be closed with it; it is taken
// first, and closed as by Close.
func CloseSocket(fd int) {
	sockets.do(1, func() {
		disarmOwn(fd)
		_ = unix.Close(fd)
	})
}

// Socket is one of package net.
type Socket interface {
	syscall.Conn
	io.Closer
	SetDeadline(time.Time) error
}

// CloseConn is CloseSocket for a Socket, of which all reads, writes and accepts fail.
func CloseConn(c Socket) {
	// No caller shall read half of what is taken, or wait for that to begin.
	_ = c.SetDeadline(time.Unix(1, 0))
	sockets.do(1, func() {
		_ = Control(c, func(fd int) error { disarmOwn(fd); return nil })
		_ = c.Close()
	})
}

// Control calls f with the descriptor of a socket or file that is open.
func Control(c syscall.Conn, f func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	return errors.Join(cerr, err)
}

// Full reports whether so many descriptors wait to be closed that no more should
// be taken: a server lets no new client in until that is over.
func Full() bool {
	return files.full() || sockets.full()
}

// Sockets of ours do not wait behind what others have passed.
var files, sockets = newCloses(), newCloses()

// closes are those that have not ended.
type closes struct {
	running chan struct{} // as many as may wait in the kernel
	held    atomic.Int64  // descriptors
	// stuck: a caller has waited for Timeout in vain, and no close has ended since.
	stuck atomic.Bool
}

func newCloses() *closes { return &closes{running: make(chan struct{}, maxClosers)} }

func (c *closes) full() bool { return c.held.Load() >= maxHeld }

// do runs what closes n descriptors, and waits for its end if that comes soon.
func (c *closes) do(n int, run func()) {
	c.held.Add(int64(n))
	done := make(chan struct{})
	go func() {
		c.running <- struct{}{}
		run()
		close(done)
		c.held.Add(-int64(n))
		c.stuck.Store(false)
		<-c.running
	}()
	if c.stuck.Load() {
		return
	}
	select {
	case <-done:
	case <-time.After(Timeout):
		c.stuck.Store(true)
	}
}
