package emulator

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/vfio"
)

// irqIndexes is the number of interrupt indexes of a PCI device (linux/vfio.h,
// VFIO_PCI_NUM_IRQS).
const irqIndexes = 5

// IRQ is described at vfio.Device. The device has MSI-X, and the two indexes with
// which VFIO tells that a device has failed (IRQErr) or goes away (IRQReq).
func (d *Device) IRQ(index int) (vfio.IRQInfo, error) {
	err := checkIRQ(index)
	if d.closed.Load() {
		err = vfio.ErrClosed
	}
	if err != nil {
		return vfio.IRQInfo{}, d.fail("describe interrupt", err)
	}
	info := vfio.IRQInfo{Index: index, Count: d.irqCount(index)}
	if info.Count > 0 {
		info.Flags = vfio.IRQEventfd
	}
	return info, nil
}

func (d *Device) irqCount(index int) int {
	switch index {
	case vfio.IRQMSIX:
		return len(d.msix.table)
	case vfio.IRQErr, vfio.IRQReq:
		return 1
	}
	return 0
}

func checkIRQ(index int) error {
	if index < 0 || index >= irqIndexes {
		return fmt.Errorf("%w: index %d", vfio.ErrNoSuchIRQ, index)
	}
	return nil
}

// SetIRQs is described at vfio.Device. As VFIO does, it enables MSI-X and
// unmasks the vectors: the user writes neither the table nor the capability.
func (d *Device) SetIRQs(index, start int, eventfds []int) error {
	return d.connect(index, start, len(eventfds), func() ([]trigger, error) { return newTriggers(eventfds) })
}

func (d *Device) Notify(index, start int, calls []func()) error {
	return d.connect(index, start, len(calls), func() ([]trigger, error) { return newCalls(calls), nil })
}

// connect has count vectors from start on signal what open returns.
func (d *Device) connect(index, start, count int, open func() ([]trigger, error)) error {
	return d.locked("connect interrupts", func() error {
		if err := checkIRQ(index); err != nil {
			return err
		}
		if n := d.irqCount(index); start < 0 || start > n || count > n-start {
			return fmt.Errorf("%w: %d vectors from %d on, index %d has %d", vfio.ErrNoSuchIRQ, count, start, index, n)
		}
		triggers, err := open()
		if err != nil || len(triggers) == 0 {
			return err
		}
		if index == vfio.IRQMSIX {
			d.config.SetMSIX(true)
			d.msix.connect(start, triggers)
			d.followConfig()
			return nil
		}
		d.event(index).set(triggers[0])
		return nil
	})
}

// event is the interrupt of an index that has one vector; nil for other indexes.
func (d *Device) event(index int) *event {
	switch index {
	case vfio.IRQErr:
		return &d.errorEvent
	case vfio.IRQReq:
		return &d.requestEvent
	}
	return nil
}

func (d *Device) DisableIRQs(index int) error {
	return d.locked("disconnect interrupts", func() error {
		if index == vfio.IRQMSIX {
			d.disconnectMSIX()
		} else if e := d.event(index); e != nil {
			e.set(trigger{})
		}
		return checkIRQ(index)
	})
}

// disconnectMSIX is called with mu held.
func (d *Device) disconnectMSIX() {
	d.config.SetMSIX(false)
	d.msix.reset()
	d.followConfig()
}
