package transport

import (
	"github.com/trapeze-nic/trapeze/internal/passedfd"
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

// Ring tells the device. Nothing else does.
func (d *Doorbell) Ring() {
	switch {
	case d.register != nil:
		mmio.ToDevice()
		mmio.Write16(d.register, d.value)
	case d.eventfd != 0:
		passedfd.SignalEventfd(d.eventfd - 1)
	}
}
