package driver

import (
	"context"
	"sync"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// vector is one interrupt vector. A goroutine reads its eventfd from the first
// wait on, unless the device calls wake itself.
type vector struct {
	number uint16
	fd     *vfio.Eventfd // nil if the device calls wake
	// also is called on each interrupt, by the goroutine.
	also func()

	mu      sync.Mutex
	next    chan struct{} // closed by the next interrupt; nil if no call waits
	started bool
	stopped bool
}

// vectorNumber is v's number as a command wants it.
func vectorNumber(v *vector) uint16 {
	if v == nil {
		return datasheet.NoVector
	}
	return v.number
}

// interrupted returns a channel that the next interrupt closes. The vector's goroutine is one of group.
func (v *vector) interrupted(group *sync.WaitGroup) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.fd != nil && !v.started && !v.stopped {
		v.started = true
		group.Go(v.run)
	}
	if v.next == nil {
		v.next = make(chan struct{})
	}
	return v.next
}

func (v *vector) run() {
	for {
		// Close ends the wait: the eventfd is closed.
		if err := v.fd.Wait(context.Background()); err != nil {
			return
		}
		v.wake()
		if v.also != nil {
			v.also()
		}
	}
}

// wake wakes all that wait. A device may call it with its locks held.
func (v *vector) wake() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next != nil {
		close(v.next)
		v.next = nil
	}
}

// close wakes all and ends the goroutine.
func (v *vector) close() error {
	v.mu.Lock()
	v.stopped = true
	v.mu.Unlock()
	v.wake()
	if v.fd == nil {
		return nil
	}
	return v.fd.Close()
}
