package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Device is a PCI function of this machine. It implements vfio.Device.
type Device struct {
	host   *host
	fn     hostpci.Function
	info   vfio.Info
	domain *domain
	part   int // of the group's bus addresses, see opening.share
	parts  int

	regions []region
	irqs    []vfio.IRQInfo

	// life is held for reading while the kernel is asked something, for writing
	// while the descriptor goes.
	life   sync.RWMutex
	fd     int
	closed bool
	// cause is why the device was taken away, nil while it is there.
	cause error

	// command is held while bits of the command register change.
	command sync.Mutex

	irqMu sync.Mutex
	// vectors counts those that the kernel has made for each of INTx, MSI and MSI-X.
	vectors [vfio.IRQErr]int

	// mapMu is held while mappings of regions come, go or change.
	mapMu sync.Mutex
	maps  map[*vfio.Mapping][]byte

	alerts alerts
}

// newDevice asks the kernel what fd is and arms the device's own interrupts.
func (at opening) newDevice(backend string, d *domain, fd int) (*Device, error) {
	info := deviceInfo{}
	if _, err := at.sys.ioctl(fd, vfioDeviceGetInfo, sized(&info)); err != nil {
		return nil, at.fail("describe", err, "")
	}
	if info.flags&deviceFlagPCI == 0 {
		return nil, at.fail("describe", fmt.Errorf("%w: flags %#x do not say that it is a PCI function", errBadAnswer, info.flags), "")
	}
	const many = 1 << 10 // more regions or interrupts than any device has
	if info.numRegions > many || info.numIRQs > many {
		return nil, at.fail("describe", fmt.Errorf("%w: %d regions, %d interrupts", errBadAnswer, info.numRegions, info.numIRQs), "")
	}
	dev := &Device{
		host: at.host, fn: at.fn, domain: d, fd: fd,
		info: vfio.Info{Address: at.text, Backend: backend, Resettable: info.flags&deviceFlagReset != 0,
			Regions: int(info.numRegions), IRQs: int(info.numIRQs)},
		maps: map[*vfio.Mapping][]byte{},
	}
	dev.part, dev.parts = at.share()
	if _, err := d.refresh(); err != nil {
		return nil, dev.fail("ask for the IOVA ranges of", err, "")
	}
	if err := dev.describe(); err != nil {
		return nil, err
	}
	if err := dev.checkPresent(); err != nil {
		return nil, err
	}
	// The kernel has cleared it already; who opens a device must not have to
	// trust that.
	if err := dev.setCommand(0, vfio.CommandBusMaster); err != nil {
		return nil, err
	}
	if err := dev.arm(); err != nil {
		return nil, err
	}
	return dev, nil
}

// describe reads what the regions and interrupts are.
func (d *Device) describe() error {
	for i := range d.info.Regions {
		r, err := d.askRegion(i)
		if err != nil {
			return d.fail(fmt.Sprintf("describe region %d of", i), err, "")
		}
		d.regions = append(d.regions, r)
	}
	for i := range d.info.IRQs {
		irq, err := d.askIRQ(i)
		if err != nil {
			return d.fail(fmt.Sprintf("describe interrupt %d of", i), err, "")
		}
		d.irqs = append(d.irqs, irq)
	}
	return nil
}

// checkPresent fails if the function does not answer.
func (d *Device) checkPresent() error {
	var b [2]byte
	if err := d.readRegion(vfio.RegionConfig, 0, b[:]); err != nil {
		return err
	}
	if b == [2]byte{0xff, 0xff} {
		return d.fail("find", fmt.Errorf("%w: its vendor reads as all ones", vfio.ErrDeviceGone), d.host.hostHint(d.fn.Address))
	}
	return nil
}

// Info describes the device.
func (d *Device) Info() vfio.Info { return d.info }

func (d *Device) fail(op string, err error, hint string) error {
	var h *hintedError
	if hint == "" && errors.As(err, &h) {
		hint = h.hint
	}
	return &vfio.Error{Op: op, Device: d.info.Address, Err: err, Hint: hint}
}

// use keeps the descriptor from going until done is called. It fails if it has
// gone.
func (d *Device) use(op string) (done func(), err error) {
	d.life.RLock()
	switch {
	case d.closed:
		err = d.fail(op, vfio.ErrClosed, "")
	case d.cause != nil:
		err = d.fail(op, d.cause, "close it")
	default:
		return d.life.RUnlock, nil
	}
	d.life.RUnlock()
	return nil, err
}

// Close gives the device back: interrupts are disconnected, bus mastering is
// turned off, memory is unmapped for DMA, then the regions. What the caller got
// from MapRegion must not be used any more. An error means that a step failed;
// the others were done all the same.
func (d *Device) Close() error {
	d.life.Lock()
	if d.closed {
		d.life.Unlock()
		return nil
	}
	d.closed = true
	err := d.release(d.unmapRegions)
	d.life.Unlock()
	return errors.Join(err, d.disarm())
}

// revoke does what Close does when the owner did not, and puts all ones where
// regions are mapped, as their user may not know yet.
func (d *Device) revoke(cause error) {
	d.life.Lock()
	defer d.life.Unlock()
	if d.closed || d.cause != nil {
		return
	}
	d.cause = cause
	err := d.release(d.blindRegions)
	slog.Warn("the kernel wanted the device back and it was not closed: it was taken away", "device", d.info.Address, "err", err)
}

// release gives everything back that the kernel has given, once. The caller
// holds life for writing.
func (d *Device) release(regions func() error) error {
	var errs []error
	step := func(op string, err error) {
		if err != nil {
			errs = append(errs, d.fail(op, err, ""))
		}
	}
	if d.fd >= 0 {
		step("disconnect the interrupts of", d.disconnectAll())
		// Before the memory goes. A device that is gone cannot be told.
		if err := d.setCommand(0, vfio.CommandBusMaster); err != nil && !errors.Is(err, vfio.ErrDeviceGone) && d.cause == nil {
			errs = append(errs, err)
		}
		errs = append(errs, d.unmapAll())
	}
	step("unmap the regions of", regions())
	if d.fd < 0 {
		return errors.Join(errs...)
	}
	if err := d.setCommand(0, vfio.CommandMemory); err != nil && !errors.Is(err, vfio.ErrDeviceGone) && d.cause == nil {
		errs = append(errs, err)
	}
	step("close", d.host.sys.close(d.fd))
	d.fd = -1
	d.host.turn <- struct{}{}
	delete(d.host.devices, d.fn.Address)
	step("close the address space of", d.host.leave(d.domain))
	<-d.host.turn
	return errors.Join(errs...)
}

// setCommand sets and clears bits of the command register. The caller holds
// life.
func (d *Device) setCommand(set, clear uint16) error {
	d.command.Lock()
	defer d.command.Unlock()
	var b [2]byte
	if err := d.readRegion(vfio.RegionConfig, vfio.ConfigCommand, b[:]); err != nil {
		return err
	}
	v := binary.LittleEndian.Uint16(b[:])
	if v == 0xffff {
		return d.fail("read the command register of", vfio.ErrDeviceGone, d.host.hostHint(d.fn.Address))
	}
	if v&^clear|set == v {
		return nil
	}
	binary.LittleEndian.PutUint16(b[:], v&^clear|set)
	return d.writeRegion(vfio.RegionConfig, vfio.ConfigCommand, b[:])
}
