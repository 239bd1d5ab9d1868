package driver

import (
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/vfio"
)

// maxVectors is how many interrupt vectors the driver takes: one for the admin
// queue, the others are shared by the completion and work queues.
const maxVectors = 8

// vector is one interrupt vector. A goroutine reads its eventfd from the first
// time that somebody waits for it.
type vector struct {
	number uint16
	fd     *vfio.Eventfd
	// also is called on each interrupt, by the goroutine.
	also func()

	mu      sync.Mutex
	next    chan struct{} // closed by the next interrupt
	started bool
	stopped bool
}

// setupVectors connects as many vectors as the device has and the driver uses.
// None is not an error: waiting then polls.
func (n *NIC) setupVectors() error {
	info, err := n.dev.IRQ(vfio.IRQMSIX)
	if err != nil || info.Count <= 0 || info.Flags&vfio.IRQEventfd == 0 {
		return nil
	}
	var fds []int
	for i := range min(info.Count, maxVectors) {
		fd, err := vfio.NewEventfd()
		if err != nil {
			return err
		}
		n.vectors = append(n.vectors, &vector{number: uint16(i), fd: fd, next: make(chan struct{})})
		fds = append(fds, fd.FD())
	}
	return n.dev.SetIRQs(vfio.IRQMSIX, 0, fds)
}

// pickVector returns a vector for a queue, nil if there are none. Vector 0 is
// the admin queue's and is shared only if there is no other.
func (n *NIC) pickVector() *vector {
	switch len(n.vectors) {
	case 0:
		return nil
	case 1:
		return n.vectors[0]
	}
	i := n.nextVector.Add(1) % uint32(len(n.vectors)-1)
	return n.vectors[1+i]
}

// vectorNumber is v's number as a command wants it.
func vectorNumber(v *vector) uint16 {
	if v == nil {
		return descriptors.NoVector
	}
	return v.number
}

// interrupted returns a channel that the next interrupt closes.
func (v *vector) interrupted(n *NIC) <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.started && !v.stopped {
		v.started = true
		n.goroutines.Go(func() { v.run(n) })
	}
	return v.next
}

func (v *vector) run(n *NIC) {
	for {
		// Close ends the wait: the eventfd is closed.
		if err := v.fd.Wait(n.background); err != nil {
			return
		}
		v.wake()
		if v.also != nil {
			v.also()
		}
	}
}

// wake wakes everybody who waits.
func (v *vector) wake() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.next)
	v.next = make(chan struct{})
}

// close wakes everybody and ends the goroutine.
func (v *vector) close() error {
	v.mu.Lock()
	v.stopped = true
	v.mu.Unlock()
	v.wake()
	return v.fd.Close()
}
