package qtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/vfio"
)

// regions and irqs are the numbers of indexes: as Linux counts them for PCI
// (linux/vfio.h, VFIO_PCI_NUM_REGIONS and VFIO_PCI_NUM_IRQS).
const regions, irqs = 9, 5

// Device is one of a machine's devices. It implements vfio.Device.
type Device struct {
	m      *Machine
	number int
	// What follows does not change after setUp.
	bars        [6]bar
	command     uint16 // after opening
	msix        *vfio.MSIXCapability
	msixControl uint64 // where it is in configuration space
	reset       func() error

	// mu is held by those who change the following, for as long as that takes.
	mu         sync.Mutex
	closed     bool
	mapped     map[uint64]*vfio.Memory // by bus address
	interrupts interrupts
}

// bar is a base address register.
type bar struct {
	address, size uint64 // size 0: there is none, or it is in I/O ports, which no driver of ours uses
	low           uint32 // what to write there; the upper half is zero
	wide          bool
}

func newDevice(m *Machine, n int) *Device {
	return &Device{m: m, number: n, mapped: map[uint64]*vfio.Memory{}, interrupts: newInterrupts(m, n)}
}

func (d *Device) fail(op string, err error) error { return d.m.fail(op, d.number, err) }

// setUp finds out what the device is, and resets it.
func (d *Device) setUp() error {
	if err := d.sizeBARs(); err != nil {
		return err
	}
	b := make([]byte, vfio.ConfigExtendedSize)
	if err := d.m.readMemory(function(d.number), b); err != nil {
		return err
	}
	config, err := vfio.ParseConfig(b)
	if err != nil {
		return err
	}
	if at, ok := config.Find(vfio.CapabilityMSIX); ok {
		d.msix, d.msixControl = config.MSIX, uint64(at.Offset)+2
	}
	d.reset = d.resetBus
	if at, ok := config.Find(vfio.CapabilityPCIe); ok && config.FunctionReset {
		d.reset = func() error { return d.resetFunction(uint64(at.Offset)) }
	}
	d.command = vfio.CommandMemory
	return d.restart(d.command)
}

// sizeBARs finds the sizes of the BARs (PCI 3.0, 6.2.5.1) and places those in memory in the
// port's window, large ones first as each lies at a multiple of its size.
func (d *Device) sizeBARs() error {
	var r [6]uint32 // what reads back after writing ones
	for i := range r {
		at := function(d.number) + 0x10 + 4*uint64(i)
		if err := d.m.write("writel", at, 0xffffffff); err != nil {
			return err
		}
		v, err := d.m.read("readl", at, 4)
		if err != nil {
			return err
		}
		r[i] = uint32(v)
	}
	for i := 0; i < len(r); i++ {
		b := &d.bars[i]
		switch v := r[i]; {
		case v == 0:
		case v&1 != 0: // I/O ports
		default:
			// Whatever the upper half can be, all windows are below 4 GiB.
			b.size, b.wide, b.low = uint64(-(v &^ 15)), v&6 == 4, v&15
			if b.wide {
				i++
			}
		}
		if b.size&(b.size-1) != 0 {
			return fmt.Errorf("%w: BAR%d reads %#x after writing ones", vfio.ErrBadConfig, i, r[i])
		}
	}
	next := uint64(memoryWindows + d.number*memoryWindow)
	end := next + memoryWindow
	for size := uint64(memoryWindow); size > 0; size >>= 1 {
		for i := range d.bars {
			b := &d.bars[i]
			if b.size != size {
				continue
			}
			b.address = next
			b.low |= uint32(b.address)
			next += size
		}
	}
	for i, b := range d.bars {
		if b.size != 0 && b.address == 0 || next > end {
			return fmt.Errorf("%w: BAR%d of %#x bytes does not fit a window of %#x", vfio.ErrBadConfig, i, b.size, memoryWindow)
		}
	}
	return nil
}

// restart resets the device, and gives it its BARs again and a command register.
func (d *Device) restart(command uint16) error {
	d.interrupts.disconnect()
	if err := d.reset(); err != nil {
		return err
	}
	var again []write
	for i, b := range d.bars {
		at := function(d.number) + 0x10 + 4*uint64(i)
		if b.size != 0 {
			again = append(again, write{"writel", at, uint64(b.low)})
		}
		if b.wide {
			again = append(again, write{"writel", at + 4, 0})
		}
	}
	return d.m.writeAll(append(again, write{"writew", function(d.number) + vfio.ConfigCommand, uint64(command)})...)
}

// Device Control of the PCI Express capability, and its bit that resets the function
// (PCIe base specification, 7.5.3.4). QEMU resets it before the write is done.
const (
	deviceControl = 8
	functionReset = 1 << 15
)

func (d *Device) resetFunction(express uint64) error {
	at := function(d.number) + express + deviceControl
	v, err := d.m.read("readw", at, 2)
	if err != nil {
		return err
	}
	return d.m.write("writew", at, v|functionReset)
}

// resetBus resets all that is behind the port: the device is alone there.
func (d *Device) resetBus() error {
	at := port(d.number) + bridgeControl
	return d.m.writeAll(write{"writew", at, bridgeBusReset}, write{"writew", at, 0})
}

func (d *Device) Info() vfio.Info {
	return vfio.Info{Address: d.m.address(d.number), Backend: "qtest", Resettable: true, Regions: regions, IRQs: irqs}
}

// Reset resets the function on its own if it can do that, else the bus that it is
// alone on. The command register stays, as with VFIO.
func (d *Device) Reset(ctx context.Context) error {
	return d.change("reset", func() error {
		command, err := d.m.read("readw", function(d.number)+vfio.ConfigCommand, 2)
		switch {
		case err != nil:
			return err
		case uint16(command) == 0xffff:
			return vfio.ErrDeviceGone
		}
		return d.restart(uint16(command))
	})
}

// change does what changes the device, unless it is closed.
func (d *Device) change(op string, f func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.fail(op, vfio.ErrClosed)
	}
	return d.fail(op, f())
}

// Close resets the device and takes its memory away. Closing again does nothing.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	var err error
	if d.reset != nil && d.m.link.lost() == nil {
		err = d.reset()
	}
	d.interrupts.close()
	for iova, mem := range d.mapped {
		err = errors.Join(err, d.unmap(iova, mem))
	}
	d.m.release(d)
	return d.fail("close", err)
}

// read reads 1 to 8 bytes of memory or I/O ports.
func (m *Machine) read(request string, address uint64, width int) (uint64, error) {
	value, err := m.link.ask("%s %#x", request, address)
	if err != nil {
		return 0, err
	}
	n, err := parseNumber(value, width)
	return n, m.understood(err)
}

// write writes what request says to memory or I/O ports.
func (m *Machine) write(request string, address, value uint64) error {
	_, err := m.link.ask("%s %#x %#x", request, address, value)
	return err
}

// write is a request to write to memory or I/O ports.
type write struct {
	request        string
	address, value uint64
}

// writeAll writes one after the other, up to the first that fails.
func (m *Machine) writeAll(list ...write) error {
	for _, w := range list {
		if err := m.write(w.request, w.address, w.value); err != nil {
			return err
		}
	}
	return nil
}

func little(p []byte, v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	copy(p, b[:])
}
