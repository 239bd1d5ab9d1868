package vfiouser

import (
	"iter"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio"
)

// eventTable holds the eventfds that a client has connected to vectors, -1 where
// it has not. The device has them too; the table owns them. One goroutine uses
// all methods; signalRequest and unblock may be called by others.
type eventTable struct {
	mu     sync.Mutex
	events [][]int // by index and vector; the one goroutine reads it without mu
}

func newEventTable(dev ServedDevice) *eventTable {
	t := &eventTable{}
	for index := range dev.Info().IRQs {
		var vectors []int
		if info, err := dev.IRQ(index); err == nil {
			vectors = make([]int, max(info.Count, 0))
		}
		for i := range vectors {
			vectors[i] = -1
		}
		t.events = append(t.events, vectors)
	}
	return t
}

// indexes lists the interrupt indexes with vectors.
func (t *eventTable) indexes() iter.Seq[int] {
	return func(yield func(int) bool) {
		for i, vectors := range t.events {
			if len(vectors) > 0 && !yield(i) {
				return
			}
		}
	}
}

// connect replaces eventfds and owns the new ones. The vectors exist.
func (t *eventTable) connect(index, start int, fds []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, fd := range fds {
		old := &t.events[index][start+i]
		closeEvent(*old)
		*old = fd
	}
}

// disconnect closes the eventfds of an index.
func (t *eventTable) disconnect(index int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if index >= len(t.events) {
		return
	}
	for i := range t.events[index] {
		closeEvent(t.events[index][i])
		t.events[index][i] = -1
	}
}

// close closes all.
func (t *eventTable) close() {
	for index := range t.events {
		t.disconnect(index)
	}
}

func closeEvent(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// trigger signals vectors: those whose bool is not zero, or all if there are no
// bools.
func (t *eventTable) trigger(index, start, count int, bools []byte) {
	for i := range count {
		if fd := t.events[index][start+i]; fd >= 0 && (bools == nil || bools[i] != 0) {
			passedfd.SignalEventfd(fd)
		}
	}
}

// signalRequest signals the eventfd by which a client learns that it should
// leave. It reports false if the client has connected none.
func (t *eventTable) signalRequest() bool {
	fd := t.duplicateRequest()
	if fd < 0 {
		return false
	}
	defer unix.Close(fd)
	passedfd.SignalEventfd(fd)
	return true
}

func (t *eventTable) duplicateRequest() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.events) <= vfio.IRQReq || len(t.events[vfio.IRQReq]) == 0 || t.events[vfio.IRQReq][0] < 0 {
		return -1
	}
	fd, err := unix.FcntlInt(uintptr(t.events[vfio.IRQReq][0]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return fd
}

// unblock empties eventfds that are full. Writing to such a one blocks if the
// client has cleared O_NONBLOCK, which the two processes share, and a device
// that waits in vain would keep the server waiting too. An honest client's
// eventfd is never full: it counts to 2^64.
func (t *eventTable) unblock() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, vectors := range t.events {
		for _, fd := range vectors {
			if fd >= 0 && passedfd.EventfdFull(fd) {
				passedfd.DrainEventfd(fd)
			}
		}
	}
}
