package passedfd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// ErrNotEventfd: a descriptor is something else than an eventfd. Eight bytes that
// are written to it would get somewhere, or the write would wait.
var ErrNotEventfd = errors.New("not an eventfd")

// TakeEventfd checks that a descriptor is an eventfd, and has writing to it not
// wait. The process that has passed it can undo the latter at any time. It fails
// with ErrNotEventfd or an errno.
func TakeEventfd(fd int) error {
	n, err := name(fd)
	if err != nil {
		return err
	}
	if n != eventfdName {
		return fmt.Errorf("%w: %s", ErrNotEventfd, n)
	}
	return os.NewSyscallError("fcntl", unix.SetNonblock(fd, true))
}

// one is the number that a signal adds to an eventfd: 1, in the byte order of the machine,
// which is little-endian on all that this runs on.
var one = [8]byte{1}

// SignalEventfd adds 1 to an eventfd. One that is full is signalled as much as can
// be. It waits if the other process has cleared O_NONBLOCK and fills the eventfd at
// the same moment, until DrainEventfd.
func SignalEventfd(fd int) {
	if !EventfdFull(fd) {
		_, _ = unix.Write(fd, one[:])
	}
}

// DrainEventfd takes all signals without waiting, whatever the other process has made
// of the descriptor's flags, which the two share.
func DrainEventfd(fd int) {
	var count [8]byte
	_, _ = unix.Preadv2(fd, [][]byte{count[:]}, -1, unix.RWF_NOWAIT)
}

// EventfdFull reports whether a write to an eventfd would wait or fail. No honest
// process's is ever full: it counts to 2^64.
func EventfdFull(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	for {
		_, err := unix.Poll(p, 0)
		if !errors.Is(err, unix.EINTR) {
			return err != nil || p[0].Revents&unix.POLLOUT == 0
		}
	}
}
