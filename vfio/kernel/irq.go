package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// irqNames names the interrupt indexes in errors.
var irqNames = []string{"INTx", "MSI", "MSI-X", "error", "request"}

func irqName(index int) string {
	if index < len(irqNames) {
		return irqNames[index]
	}
	return fmt.Sprintf("number %d", index)
}

// askIRQ asks the kernel what an interrupt index is. One that the function does
// not have counts 0.
func (d *Device) askIRQ(index int) (vfio.IRQInfo, error) {
	info := irqInfo{index: uint32(index)}
	_, err := d.host.sys.ioctl(d.fd, vfioDeviceGetIRQInfo, sized(&info))
	if errors.Is(err, unix.EINVAL) { // such as the error interrupt of a conventional PCI function
		return vfio.IRQInfo{Index: index}, nil
	}
	if err != nil {
		return vfio.IRQInfo{}, err
	}
	const most = 2048 // MSI-X has no more
	if info.count > most {
		return vfio.IRQInfo{}, fmt.Errorf("%w: %d vectors", errBadAnswer, info.count)
	}
	return vfio.IRQInfo{Index: index, Count: int(info.count), Flags: vfio.IRQFlags(info.flags)}, nil
}

// IRQ describes an interrupt index.
func (d *Device) IRQ(index int) (vfio.IRQInfo, error) {
	op := "describe an interrupt of"
	done, err := d.use(op)
	if err != nil {
		return vfio.IRQInfo{}, err
	}
	defer done()
	return d.irq(op, index)
}

func (d *Device) irq(op string, index int) (vfio.IRQInfo, error) {
	if index < 0 || index >= len(d.irqs) {
		return vfio.IRQInfo{}, d.fail(op, fmt.Errorf("%w: index %d of %d", vfio.ErrNoSuchIRQ, index, len(d.irqs)), "")
	}
	return d.irqs[index], nil
}

// SetIRQs connects vectors of an interrupt index to eventfds. Only one of
// MSI and MSI-X can be in use: DisableIRQs ends that. INTx, a line that would have to be unmasked after
// each interrupt, is not supported. The error and request interrupts are the
// device's own, see Alerts.
//
// If it fails with anything else than vfio.ErrNoSuchIRQ, the vectors named are
// disconnected.
func (d *Device) SetIRQs(index, start int, eventfds []int) error {
	op := "connect interrupts of"
	done, err := d.use(op)
	if err != nil {
		return err
	}
	defer done()
	irq, err := d.irq(op, index)
	if err != nil {
		return err
	}
	op = fmt.Sprintf("connect %d %s interrupts from %d of", len(eventfds), irqName(index), start)
	switch {
	case start < 0 || start > irq.Count || len(eventfds) > irq.Count-start:
		return d.fail(op, fmt.Errorf("%w: it has %d vectors", vfio.ErrNoSuchIRQ, irq.Count), "")
	case len(eventfds) == 0:
		return nil
	}
	d.irqMu.Lock()
	defer d.irqMu.Unlock()
	if irq.Flags&vfio.IRQEventfd == 0 || index >= len(d.vectors) || index == vfio.IRQINTx {
		return d.fail(op, vfio.ErrNotSupported, "use MSI or MSI-X; Alerts gives errors and requests")
	}
	for other, n := range d.vectors {
		if other != index && n > 0 {
			return d.fail(op, unix.EBUSY, fmt.Sprintf("%s is in use: DisableIRQs(%d) first", irqName(other), other))
		}
	}
	if d.vectors[index] == 0 {
		return d.makeVectors(op, irq, start, eventfds)
	}
	if irq.Flags&vfio.IRQNoResize != 0 && start+len(eventfds) > d.vectors[index] {
		return d.fail(op, vfio.ErrNotSupported, fmt.Sprintf("this kernel made %d vectors and cannot add any: "+
			"DisableIRQs(%d), then connect all at once", d.vectors[index], index))
	}
	if _, err := d.setEventfds(index, start, eventfds); err != nil {
		return d.fail(op, err, hintEventfd(err))
	}
	d.vectors[index] = max(d.vectors[index], start+len(eventfds))
	return nil
}

// makeVectors connects the first vectors of an index, which turns it
// on. Where the number of vectors cannot change later, it makes all there are,
// or as many as the kernel can.
func (d *Device) makeVectors(op string, irq vfio.IRQInfo, start int, eventfds []int) error {
	if !slices.ContainsFunc(eventfds, func(fd int) bool { return fd >= 0 }) {
		return nil
	}
	need := start + len(eventfds)
	count := need
	if irq.Flags&vfio.IRQNoResize != 0 {
		count = irq.Count
	}
	for {
		all := make([]int, count)
		for i := range all {
			all[i] = -1
		}
		copy(all[start:], eventfds)
		can, err := d.setEventfds(irq.Index, 0, all)
		switch {
		case err != nil:
			return d.fail(op, err, hintEventfd(err))
		case can == 0:
			d.vectors[irq.Index] = count
			return nil
		case can < need || can >= count:
			// It says how many there could be, and has made none.
			return d.fail(op, unix.ENOSPC, fmt.Sprintf("the kernel has %d vectors for this function, %d are wanted", can, need))
		}
		count = can
	}
}

// setEventfds has the kernel signal eventfds. It returns 0, or how many vectors
// there could be if there cannot be that many.
func (d *Device) setEventfds(index, start int, eventfds []int) (int, error) {
	set := irqSet{flags: irqSetDataEventfd | irqSetActionTrigger, index: uint32(index), start: uint32(start), count: uint32(len(eventfds))}
	set.argsz = sizeOf(&set) + 4*set.count
	b := slices.Clone(bytesOf(&set))
	for _, fd := range eventfds {
		b = binary.NativeEndian.AppendUint32(b, uint32(int32(max(fd, -1))))
	}
	return d.host.sys.ioctl(d.fd, vfioDeviceSetIRQs, b)
}

// act disconnects all vectors of an index.
func (d *Device) act(index int) error {
	set := irqSet{flags: irqSetDataNone | irqSetActionTrigger, index: uint32(index)}
	_, err := d.host.sys.ioctl(d.fd, vfioDeviceSetIRQs, sized(&set))
	return err
}

func hintEventfd(err error) string {
	switch {
	case errors.Is(err, unix.EBADF), errors.Is(err, unix.EINVAL):
		return "each must be an eventfd or negative"
	case errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC):
		return "the kernel has no vectors left: use fewer"
	}
	return ""
}

// DisableIRQs disconnects every vector of an interrupt index.
func (d *Device) DisableIRQs(index int) error {
	op := "disconnect interrupts of"
	done, err := d.use(op)
	if err != nil {
		return err
	}
	defer done()
	if _, err := d.irq(op, index); err != nil {
		return err
	}
	d.irqMu.Lock()
	defer d.irqMu.Unlock()
	if err := d.disconnect(index); err != nil {
		return d.fail(op, err, "")
	}
	return nil
}

// disconnect turns one of INTx, MSI and MSI-X off. The kernel calls it invalid
// if it is off.
func (d *Device) disconnect(index int) error {
	if index >= len(d.vectors) || d.vectors[index] == 0 {
		return nil
	}
	if err := d.act(index); err != nil {
		return err
	}
	d.vectors[index] = 0
	return nil
}

// disconnectVectors turns INTx, MSI and MSI-X off, and leaves the device's own
// interrupts alone.
func (d *Device) disconnectVectors() error {
	d.irqMu.Lock()
	defer d.irqMu.Unlock()
	var errs []error
	for index := range d.vectors {
		errs = append(errs, d.disconnect(index))
	}
	return errors.Join(errs...)
}
