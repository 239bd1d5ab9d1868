package driver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/trace"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// setup makes the device ready, step by step. What it leaves behind when it
// fails, shutdown takes down.
func (n *NIC) setup(ctx context.Context) error {
	defer trace.StartRegion(ctx, "NIC opens").End()
	if err := n.checkID(); err != nil {
		return err
	}
	if err := n.setCommand(vfio.CommandMemory, 0); err != nil {
		return err
	}
	if err := n.openRegions(); err != nil {
		return err
	}
	blocks, err := walkBlocks(n.bar0.size, func(at uint64) (uint32, error) { return n.bar0.read32(n.background, at) })
	if err != nil {
		return err
	}
	used, err := checkBlocks(blocks)
	if err != nil {
		return err
	}
	n.regs.bar, n.regs.blocks = n.bar0, used

	if err := n.reset(ctx); err != nil {
		return err
	}
	pci := n.identity.PCI
	if n.identity, err = readIdentity(&n.regs, n.bar2.size); err != nil {
		return err
	}
	n.identity.PCI, n.identity.Blocks = pci, blocks
	n.marks = n.wantsMarks()
	n.endpoints = make([]atomic.Pointer[endpoint], n.identity.MaxEndpoints)

	ranges, err := n.dev.IOVARanges()
	if err != nil {
		return err
	}
	if p, ok := n.dev.(vfio.Physical); ok && p.Unguarded() {
		n.physical = p
	}
	n.foreign.init(ranges)
	n.iovas = vfio.NewIOVAAllocator(ranges, uint64(os.Getpagesize()))
	// A reset may have cleared both bits. The device has forgotten all bus
	// addresses, so it can become bus master only now.
	n.mastering = true
	if err := n.setCommand(vfio.CommandMemory|vfio.CommandBusMaster, 0); err != nil {
		return err
	}
	if err := n.setupVectors(); err != nil {
		return err
	}
	n.identity.Vectors = len(n.vectors)
	n.startWatch()
	return n.enableAdmin(ctx)
}

// classEthernet is the base class and subclass of Ethernet controllers (PCI Code and ID
// Assignment Specification).
const classEthernet = 0x0200

// checkID refuses devices that this driver does not know.
func (n *NIC) checkID() error {
	config, err := vfio.ReadConfig(n.dev)
	if err != nil {
		return err
	}
	found := PCIID{config.Vendor, config.Device}
	n.identity.PCI = found
	known := append([]PCIID{{datasheet.PCIVendorID, datasheet.PCIDeviceID}}, n.options.IDs...)
	if slices.Contains(known, found) {
		return nil
	}
	other := ""
	address, _, _ := strings.Cut(n.dev.Info().Address, "?")
	if strings.HasPrefix(address, "pci:") && config.Class>>8 == classEthernet {
		other = "; as the wire of a NIC it is eth:" + address
	}
	return fmt.Errorf("%w: it is PCI device %v, this driver knows %v%s", ErrUnsupportedDevice, found, known, other)
}

func (n *NIC) setCommand(set, clear uint16) error {
	var b [2]byte
	if err := n.dev.ReadRegion(vfio.RegionConfig, vfio.ConfigCommand, b[:]); err != nil {
		return err
	}
	v := binary.LittleEndian.Uint16(b[:])
	if v == 0xffff {
		return ErrDeviceGone
	}
	binary.LittleEndian.PutUint16(b[:], v&^clear|set)
	return n.dev.WriteRegion(vfio.RegionConfig, vfio.ConfigCommand, b[:])
}

func (n *NIC) openRegions() error {
	for _, r := range []struct {
		index int
		to    **region
	}{
		{datasheet.BARRegisters, &n.bar0}, {datasheet.BARDoorbells, &n.bar2}, {datasheet.BARSRAM, &n.bar4},
	} {
		region, err := openRegion(n.dev, r.index)
		if err != nil {
			return fmt.Errorf("BAR%d: %w", r.index, err)
		}
		*r.to = region
	}
	return nil
}

// reset resets the device and waits until it is ready again.
func (n *NIC) reset(ctx context.Context) error {
	defer trace.StartRegion(ctx, "NIC reset").End()
	const health = datasheet.BlockHealth
	before, err := n.regs.read(ctx, health, datasheet.RegResetCount)
	if err != nil {
		return err
	}
	if err := n.regs.writeContext(ctx, health, datasheet.RegControl, datasheet.ControlReset); err != nil {
		return err
	}
	var last uint32
	err = n.waitRegister(ctx, func() (bool, error) {
		status, err := n.regs.status(ctx)
		if err != nil {
			return false, err
		}
		last = status
		if status&datasheet.DeviceReady == 0 || status&datasheet.DeviceResetting != 0 {
			return false, nil
		}
		// Ready from before the reset does not count.
		n.resets, err = n.regs.read(ctx, health, datasheet.RegResetCount)
		return n.resets != before, err
	})
	switch {
	case errors.Is(err, errDeadline):
		return fmt.Errorf("%w within %v of a reset: status %#x", ErrNotReady, n.options.CommandTimeout, last)
	case err != nil:
		return err
	case last&datasheet.DeviceFatal != 0:
		return fmt.Errorf("%w: status %#x after a reset", ErrNotReady, last)
	}
	return nil
}

// enableAdmin brings up the admin queue and lets its interrupts be heard.
func (n *NIC) enableAdmin(ctx context.Context) error {
	a, err := n.newAdmin()
	if err != nil {
		return err
	}
	err = n.waitRegister(ctx, func() (bool, error) {
		status, err := n.regs.read(n.background, datasheet.BlockAdmin, datasheet.RegAdminStatus)
		switch {
		case err != nil:
			return false, err
		case status == allOnes:
			return false, ErrDeviceGone
		case status&datasheet.AdminError != 0:
			return false, fmt.Errorf("%w: the admin queue could not be enabled: %w", ErrNotReady, n.regs.fault())
		}
		return status&datasheet.AdminEnabled != 0, nil
	})
	if errors.Is(err, errDeadline) {
		return fmt.Errorf("%w: the admin queue was not enabled within %v", ErrNotReady, n.options.CommandTimeout)
	}
	if err != nil {
		return err
	}
	n.admin = a
	if len(n.vectors) > 0 {
		v := n.vectors[0]
		v.also = func() { a.drain() }
		v.interrupted(n)
	}
	return nil
}

// waitRegister calls f, now and then, until it returns true or an error, ctx
// ends, or the command timeout runs out, which is errDeadline.
func (n *NIC) waitRegister(ctx context.Context, f func() (bool, error)) error {
	left := newTimeLeft(n.options.CommandTimeout)
	for pause := firstStep; ; pause = min(2*pause, longestStep) {
		if ok, err := f(); ok || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if left.over() {
			return errDeadline
		}
		if n.poller == nil || !n.poller.Poll() {
			time.Sleep(pause)
		}
	}
}
