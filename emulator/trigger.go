package emulator

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// trigger is the other end of an interrupt: a duplicate of the eventfd that the
// user gave, so that the user may close his at any time; or a function. The zero
// value is not connected.
type trigger struct {
	fd   int
	call func() // in place of fd
	live bool
}

// errNotEventfd refuses other files, since an interrupt writes eight bytes, which must
// not end up in a file.
var errNotEventfd = errors.New("not an eventfd")

// newTrigger duplicates an eventfd; a negative one makes a trigger that is not
// connected.
func newTrigger(eventfd int) (trigger, error) {
	if eventfd < 0 {
		return trigger{}, nil
	}
	fd, err := unix.FcntlInt(uintptr(eventfd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return trigger{}, fmt.Errorf("descriptor %d: %w", eventfd, os.NewSyscallError("fcntl", err))
	}
	// Where /proc is not mounted, the descriptor is taken for an eventfd unchecked.
	if name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err == nil && name != "anon_inode:[eventfd]" {
		_ = unix.Close(fd)
		return trigger{}, fmt.Errorf("descriptor %d: %w but %s", eventfd, errNotEventfd, name)
	}
	return trigger{fd: fd, live: true}, nil
}

// newTriggers calls newTrigger for each eventfd, and makes all triggers or none.
func newTriggers(eventfds []int) ([]trigger, error) {
	ts := make([]trigger, 0, len(eventfds))
	for _, fd := range eventfds {
		t, err := newTrigger(fd)
		if err != nil {
			for i := range ts {
				ts[i].close()
			}
			return nil, err
		}
		ts = append(ts, t)
	}
	return ts, nil
}

func (t *trigger) connected() bool { return t.live }

// newCalls makes triggers that call functions; nil makes one that is not connected.
func newCalls(calls []func()) []trigger {
	ts := make([]trigger, len(calls))
	for i, f := range calls {
		ts[i] = trigger{call: f, live: f != nil}
	}
	return ts
}

// one is the count that a signal adds to an eventfd: 1, little-endian.
var one = [8]byte{1, 0, 0, 0, 0, 0, 0, 0}

// signal calls the function, or adds one to the eventfd. A count that has reached its
// maximum stays there.
func (t *trigger) signal() {
	switch {
	case t.call != nil:
		t.call()
	case t.live:
		_, _ = unix.Write(t.fd, one[:])
	}
}

func (t *trigger) close() {
	if t.live && t.call == nil {
		_ = unix.Close(t.fd)
	}
	*t = trigger{}
}

// event is an interrupt outside MSI-X, with a lock of its own.
type event struct {
	mu sync.Mutex
	t  trigger
}

// set replaces the trigger and owns the new one.
func (e *event) set(t trigger) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.t.close()
	e.t = t
}

func (e *event) signal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.t.signal()
}
