package transport

import (
	"github.com/trapeze-nic/trapeze/internal/mmio"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Doorbell tells the device that a queue has new buffers. The zero value does nothing.
type Doorbell struct {
	register *uint16
	value    uint16
	eventfd  int // in place of a register; one more than the descriptor
	trapped  *trapped
}

// trapped is a register that cannot be mapped.
type trapped struct {
	dev    vfio.Device
	bar    int
	offset uint64
	value  [2]byte
}

// RegisterDoorbell is a register of a device, which takes the queue's value.
func RegisterDoorbell(register *uint16, value uint16) Doorbell {
	return Doorbell{register: register, value: value}
}

// EventfdDoorbell is an eventfd of ours, which does not wait.
func EventfdDoorbell(fd int) Doorbell { return Doorbell{eventfd: fd + 1} }

// TrappedDoorbell is RegisterDoorbell for a register that cannot be mapped.
func TrappedDoorbell(dev vfio.Device, bar int, offset uint64, value uint16) Doorbell {
	return Doorbell{trapped: &trapped{dev, bar, offset, [2]byte{byte(value), byte(value >> 8)}}}
}

// Ring tells the device. Nothing else does.
func (d *Doorbell) Ring() {
	switch {
	case d.register != nil:
		mmio.ToDevice()
		mmio.Write16(d.register, d.value)
	case d.trapped != nil:
		mmio.ToDevice()
		// It fails if the device has gone, which others notice.
		_ = d.trapped.dev.WriteRegion(d.trapped.bar, d.trapped.offset, d.trapped.value[:])
	case d.eventfd != 0:
		passedfd.SignalEventfd(d.eventfd - 1)
	}
}
