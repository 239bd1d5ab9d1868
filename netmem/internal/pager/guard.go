package pager

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
)

// hungAfter is the number of deadlines without a word of the pager; it says that it is alive several
// times in each.
const hungAfter = 2

// wakes is the time between two wake-ups of threads that may wait, after the end. See Memory.End.
const wakes = 50 * time.Millisecond

// guardVariable tells a process that it is the guard, and the base and size of the memory and the deadline.
const guardVariable = "TRAPEZE_PAGER_GUARD"

var (
	// ErrDied: the pager's process has ended.
	ErrDied = errors.New("the pager has died")
	// ErrHung: the pager's process is there, and does nothing.
	ErrHung = errors.New("the pager does nothing any more")
)

// startGuard starts this program once more, as the guard of the memory. The pager writes to life.
func startGuard(m *Memory, deadline time.Duration) (guard *exec.Cmd, life *os.File, err error) {
	theirs, life, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	guard = exec.Command("/proc/self/exe", os.Args[1:]...)
	guard.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %d", guardVariable, m.Base, m.Size, deadline))
	guard.Stderr = os.Stderr
	err = Start(guard, linkFD, objectFD, fileFD, int(theirs.Fd()))
	theirs.Close()
	// To start a process makes its descriptors block, and these are duplicates.
	err = errors.Join(err, unix.SetNonblock(linkFD, true), unix.SetNonblock(objectFD, true))
	if err != nil {
		life.Close()
		return nil, nil, fmt.Errorf("start the pager's guard: %w", err)
	}
	return guard, life, nil
}

// guard ends the memory when the pager has died, of which it learns by the end of a pipe
// that the pager alone writes to, or when the pager has not answered for too long. It returns when the mapper
// has closed the link, with what it could not tell it.
func guard(what string) error {
	m := Memory{File: fileFD}
	var deadline time.Duration
	if _, err := fmt.Sscan(what, &m.Base, &m.Size, &deadline); err != nil {
		return fmt.Errorf("guard of a pager: %w", err)
	}
	var err error
	if m.Object, err = userfault.Take(objectFD); err != nil {
		return err
	}
	reason := watchLife(hungAfter * deadline)
	if reason == nil {
		return nil
	}
	err = errors.Join(reason, m.End())
	b, _ := json.Marshal(Message{Kind: KindFailed, Failure: NewFailure(err)}) // of strings, it never fails
	if _, e := unix.Write(linkFD, b); e == nil {
		err = nil // the mapper says it
	}
	for link := []unix.PollFd{{Fd: linkFD}}; link[0].Revents == 0; {
		_ = m.End()                                         // what can fail has been told
		_, _ = unix.Poll(link, int(wakes/time.Millisecond)) // so has this: then it does not wait
	}
	return err
}

// watchLife returns why the pager is no more, or nil if that has ended after the mapper had closed the link.
func watchLife(limit time.Duration) error {
	missing, closed := 0, false
	fds := []unix.PollFd{{Fd: linkFD}, {Fd: lifeFD, Events: unix.POLLIN}}
	for b := make([]byte, 64); ; {
		// Two halves: a machine that was asleep wakes with both processes late, and the
		// pager has a chance to go first.
		n, err := unix.Poll(fds, int(limit/2/time.Millisecond)+1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("watch the pager: %w", err)
		case fds[0].Revents != 0:
			closed, fds[0].Fd, fds[0].Revents = true, -1, 0 // the pager still writes back what the mapper has left
			continue
		case n > 0:
			if n, err = unix.Read(lifeFD, b); n > 0 || errors.Is(err, unix.EINTR) {
				missing = 0
				continue
			}
			err = ErrDied
		default:
			if missing++; missing < 2 {
				continue
			}
			err = fmt.Errorf("%w, for %v", ErrHung, limit)
		}
		if closed {
			return nil
		}
		return err
	}
}
