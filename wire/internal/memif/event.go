package memif

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

// event is an eventfd: a ring's, which the peer has too, or the bell that calls
// a port's goroutine.
type event struct {
	mu sync.Mutex // of those who signal and close
	fd int
}

func newEvent() (*event, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return &event{fd: fd}, nil
}

// takeEvent makes an event of the peer's descriptor, which it owns unless it
// fails. Anything else than an eventfd could keep us waiting, or get our eight
// bytes.
func takeEvent(fd int) (*event, error) {
	if err := passedfd.TakeEventfd(fd); err != nil {
		return nil, fmt.Errorf("%w: a ring's descriptor: %w", ErrMessage, err)
	}
	return &event{fd: fd}, nil
}

// signal adds 1. It does nothing after close.
func (e *event) signal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fd >= 0 {
		// One that is full is signalled as much as can be.
		_, _ = unix.Write(e.fd, one[:])
	}
}

// unblock lets a signal of another goroutine go on that the peer keeps waiting,
// which has cleared O_NONBLOCK and filled the eventfd, and reports whether there
// was one. No honest peer's is ever full.
func (e *event) unblock() bool {
	if e.mu.TryLock() {
		e.mu.Unlock()
		return false
	}
	if !passedfd.EventfdFull(e.fd) {
		return false
	}
	e.drain()
	return true
}

// one is the word that signal writes: 1 in the byte order of the machine.
var one = [8]byte{1}

// drain takes all signals without waiting.
func (e *event) drain() { passedfd.DrainEventfd(e.fd) }

// close closes the descriptor. A peer that has cleared O_NONBLOCK and filled
// the eventfd may keep a signal waiting: draining lets it go on.
func (e *event) close() {
	for !e.mu.TryLock() {
		e.drain()
		time.Sleep(closeRetry)
	}
	defer e.mu.Unlock()
	if e.fd >= 0 {
		_ = unix.Close(e.fd)
		e.fd = -1
	}
}

// closeRetry is the time that a signal of another goroutine may take, generously.
const closeRetry = 100 * time.Microsecond

// await waits until one of the descriptors of fds can be read or has failed, or
// until the deadline, and says which in Revents. There is no deadline if it is
// zero.
func await(fds []unix.PollFd, deadline time.Time) error {
	for {
		timeout := -1
		if !deadline.IsZero() {
			timeout = int(max(0, (time.Until(deadline) + time.Millisecond - 1).Milliseconds()))
		}
		_, err := unix.Poll(fds, timeout)
		if !errors.Is(err, unix.EINTR) {
			return os.NewSyscallError("poll", err)
		}
	}
}
