package virtio

import (
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/transport"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/virtqueue"
)

// ring is one virtqueue of a port.
type ring struct {
	virtqueue.Queue
	bell    transport.Doorbell
	options virtqueue.Options
	layout  virtqueue.Layout
	// at is where in the memory of rings it is.
	at uint64
	// interrupt is which eventfd of the port the device signals, or -1.
	interrupt int
}

// ask says how many descriptors are wanted.
func (r *ring) ask(index, size int) { r.options = virtqueue.Options{Index: index, Size: size} }

// make makes the queue anew, empty.
func (r *ring) make(memory []byte) (err error) {
	r.Queue, err = virtqueue.New(memory[r.at:], r.options)
	return err
}

// publish shows the device what was added, and tells it if it wants to know.
func (r *ring) publish() {
	if r.Publish() {
		r.bell.Ring()
	}
}
