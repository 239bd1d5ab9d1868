package vfiouser

import (
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio"
)

// eventTable holds the eventfds that are connected to vectors, and owns them. A server has those of its client, which the
// device has too, and a client has duplicates of its own, as only it can signal them when the server is lost.
type eventTable struct {
	mu  sync.Mutex
	fds map[vector]int
}

type vector struct{ index, number int }

// connect replaces eventfds and owns the new ones; negative ones disconnect their vectors.
func (t *eventTable) connect(index, start int, fds []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.fds == nil {
		t.fds = map[vector]int{}
	}
	for i, fd := range fds {
		v := vector{index, start + i}
		t.drop(v)
		if fd >= 0 {
			t.fds[v] = fd
		}
	}
}

// drop closes the eventfd of a vector. mu is held.
func (t *eventTable) drop(v vector) {
	if fd, ok := t.fds[v]; ok {
		_ = unix.Close(fd)
		delete(t.fds, v)
	}
}

// disconnect closes the eventfds of an index.
func (t *eventTable) disconnect(index int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for v := range t.fds {
		if v.index == index {
			t.drop(v)
		}
	}
}

// close closes all.
func (t *eventTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for v := range t.fds {
		t.drop(v)
	}
}

// indexes lists the indexes with connected vectors.
func (t *eventTable) indexes() map[int]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	indexes := map[int]bool{}
	for v := range t.fds {
		indexes[v.index] = true
	}
	return indexes
}

// wake signals all eventfds of a client, which are its own: none is full.
func (t *eventTable) wake() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, fd := range t.fds {
		passedfd.SignalEventfd(fd)
	}
}

// trigger signals vectors: those whose bool is not zero, or all if there are no
// bools. Only the caller connects and disconnects.
func (t *eventTable) trigger(index, start, count int, bools []byte) {
	for i := range count {
		t.mu.Lock()
		fd, ok := t.fds[vector{index, start + i}]
		t.mu.Unlock() // a signal may have to wait for unblock
		if ok && (bools == nil || bools[i] != 0) {
			passedfd.SignalEventfd(fd)
		}
	}
}

// signalRequest signals the eventfd by which a client learns that it should
// leave. It reports false if the client has connected none.
func (t *eventTable) signalRequest() bool {
	t.mu.Lock()
	own, err := -1, error(nil)
	if fd, ok := t.fds[vector{vfio.IRQReq, 0}]; ok {
		own, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	t.mu.Unlock()
	if own < 0 || err != nil {
		return false
	}
	defer unix.Close(own)
	passedfd.SignalEventfd(own)
	return true
}

// unblock empties eventfds that are full. Writing to such a one blocks if the
// client has cleared O_NONBLOCK, which the two processes share, and a device
// that waits in vain would keep the server waiting too. An honest client's
// eventfd is never full: it counts to 2^64.
func (t *eventTable) unblock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, fd := range t.fds {
		if passedfd.EventfdFull(fd) {
			passedfd.DrainEventfd(fd)
		}
	}
}
