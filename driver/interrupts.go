package driver

import "github.com/trapeze-nic/trapeze/vfio"

// maxVectors is the number of interrupt vectors that the driver takes: one for the admin
// queue, the others are shared by the completion and work queues.
const maxVectors = 8

// setupVectors connects as many vectors as the device has and the driver uses.
// None is not an error: waiting then polls.
func (n *NIC) setupVectors() error {
	info, err := n.dev.IRQ(vfio.IRQMSIX)
	if err != nil || info.Count <= 0 || info.Flags&vfio.IRQEventfd == 0 {
		return nil
	}
	var fds []int
	var calls []func()
	for i := range min(info.Count, maxVectors) {
		v := &vector{number: uint16(i)}
		n.vectors = append(n.vectors, v)
		if n.local != nil && i > 0 {
			calls = append(calls, v.wake)
			continue
		}
		// What is done on the admin queue's interrupt calls the device, so it is not
		// for the device to call.
		if v.fd, err = vfio.NewEventfd(); err != nil {
			return err
		}
		if n.local != nil && info.Count > 1 {
			calls = append(calls, func() { n.adminInterrupt(v) })
		} else {
			fds = append(fds, v.fd.FD())
		}
	}
	if err := n.dev.SetIRQs(vfio.IRQMSIX, 0, fds); err != nil || len(calls) == 0 {
		return err
	}
	return n.local.Notify(vfio.IRQMSIX, len(fds), calls)
}

// adminInterrupt is called by a device in this process. A device that answers a command
// while it is given wakes no goroutine: the caller looks at the admin queue next.
func (n *NIC) adminInterrupt(v *vector) {
	if !n.giving.Load() {
		_ = v.fd.Signal() // it fails only once the NIC is closed
	}
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
