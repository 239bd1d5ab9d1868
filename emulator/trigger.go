package emulator

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// trigger is the other end of an interrupt: a function, or a duplicate of the eventfd
// that the user gave, so that the user may close his at any time. The zero value is not
// connected.
type trigger struct {
	call    func()
	release func() // closes the duplicate; nil for a function
}

// errNotEventfd refuses other files, since an interrupt writes eight bytes, which must
// not end up in a file.
var errNotEventfd = errors.New("not an eventfd")

// one is the count that a signal adds to an eventfd: 1, little-endian.
var one = [8]byte{1, 0, 0, 0, 0, 0, 0, 0}

// newTrigger duplicates an eventfd; a negative one makes a trigger that is not
// connected. An eventfd whose count has reached its maximum stays there.
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
	return trigger{func() { _, _ = unix.Write(fd, one[:]) }, func() { _ = unix.Close(fd) }}, nil
}

// newTriggers calls newTrigger for each eventfd, and makes all triggers or none.
func newTriggers(eventfds []int) ([]trigger, error) {
	ts := make([]trigger, len(eventfds))
	for i, fd := range eventfds {
		var err error
		if ts[i], err = newTrigger(fd); err != nil {
			for i := range ts {
				ts[i].close()
			}
			return nil, err
		}
	}
	return ts, nil
}

// newCalls makes triggers that call functions; nil makes one that is not connected.
func newCalls(calls []func()) []trigger {
	ts := make([]trigger, len(calls))
	for i, f := range calls {
		ts[i].call = f
	}
	return ts
}

func (t *trigger) connected() bool { return t.call != nil }

func (t *trigger) signal() {
	if t.call != nil {
		t.call()
	}
}

func (t *trigger) close() {
	if t.release != nil {
		t.release()
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
