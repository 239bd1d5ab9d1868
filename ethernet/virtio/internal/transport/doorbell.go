package transport

import (
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/vfio/mmio"
)

// Doorbell tells the device that a queue has new buffers. The zero value does nothing.
type Doorbell struct {
	register *uint16
	value    uint16
	eventfd  int // in place of a register; one more than the descriptor
}

// RegisterDoorbell is a register of a device, which takes the queue's value.
func RegisterDoorbell(register *uint16, value uint16) Doorbell {
	return Doorbell{register: register, value: value}
}

// EventfdDoorbell is an eventfd of ours, which does not wait.
func EventfdDoorbell(fd int) Doorbell { return Doorbell{eventfd: fd + 1} }

// one is what a signal adds to an eventfd, in the byte order of the machine, which is
// little-endian on all that this runs on.
var one = [8]byte{1}

// Ring tells the device. Nothing else does.
func (d *Doorbell) Ring() {
	switch {
	case d.register != nil:
		mmio.ToDevice()
		mmio.Write16(d.register, d.value)
	case d.eventfd != 0:
		// It fails if it is signalled as much as can be, which is enough.
		_, _ = unix.Write(d.eventfd-1, one[:])
	}
}
