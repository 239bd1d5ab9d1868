package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver/internal/dma"
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
	if err := vfio.SetCommand(n.dev, vfio.CommandMemory, 0); err != nil {
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

	if n.space, err = dma.NewSpace(n.dev, n.bound); err != nil {
		return err
	}
	// A reset may have cleared both bits. The device has forgotten all bus
	// addresses, so it can become bus master only now.
	n.mastering = true
	if err := vfio.SetCommand(n.dev, vfio.CommandMemory|vfio.CommandBusMaster, 0); err != nil {
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
		v.interrupted(&n.goroutines)
	}
	return nil
}

const opOpen = "open"

// Open opens the NIC at an address, see vfio.ParseAddress.
func Open(ctx context.Context, address string, o Options) (*NIC, error) {
	if ctx == nil {
		return nil, NewError(opOpen, address, errNoContext)
	}
	dev, err := vfio.Open(ctx, address)
	if err != nil {
		return nil, NewError(opOpen, address, err)
	}
	return New(ctx, dev, o)
}

// New takes a device, resets it and makes it ready. The device belongs to the
// NIC from then on: if New fails, it is closed. A device that another NIC has is refused with
// ErrInvalidState, and stays that NIC's.
//
// A device that is not a Trapeze NIC is refused with ErrUnsupportedDevice, one
// whose registers this driver does not understand with ErrBadRegisters or a
// *VersionError; neither is written to except for enabling memory decoding.
func New(ctx context.Context, dev vfio.Device, o Options) (*NIC, error) {
	if dev == nil {
		return nil, NewError(opOpen, "", fmt.Errorf("%w: the device is nil", descriptors.ErrInvalidParameter))
	}
	if !claimDevice(dev) {
		return nil, hinted(NewError(opOpen, dev.Info().Address, fmt.Errorf("%w: another NIC has the device", descriptors.ErrInvalidState)),
			"use that NIC, or close it and open the device anew")
	}
	err := o.sampleLatency()
	if ctx == nil {
		err = errNoContext
	}
	if err != nil {
		return nil, errors.Join(NewError(opOpen, dev.Info().Address, err), closeDevice(dev))
	}
	if o.CommandTimeout <= 0 {
		o.CommandTimeout = 2 * time.Second
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	n := &NIC{
		dev: dev, info: dev.Info(), options: o, opened: time.Now(), background: context.Background(),
		done: make(chan struct{}), cqs: map[uint32]*CQ{},
	}
	n.events.Log, n.events.Closing = n.logEvents, &n.closing
	n.SetWaiting(Waiting{})
	n.log = o.Logger.With("device", n.info.Address)
	n.poller, _ = dev.(vfio.Poller)
	if n.local, _ = dev.(vfio.InProcess); n.local != nil {
		if n.waker = n.local; !n.local.Polled() {
			n.poller, n.waker = nil, nil
		}
	}
	n.remote, _ = dev.(vfio.Remote)
	n.regions.m, n.regions.failed = map[uint32]*Memory{}, n.failed
	if err := n.bound(ctx, 0, func() error { return n.setup(ctx) }); err != nil {
		n.closeOnce.Do(n.shutdown)
		return nil, n.error(opOpen, err)
	}
	n.unshow = n.show()
	return n, nil
}

// newAdmin gives the rings to the device and enables the queue. The queue is
// not yet enabled when it returns: see RegAdminStatus.
func (n *NIC) newAdmin() (*admin, error) {
	const sqSize = datasheet.AdminEntrySize << adminSQLog2
	const acqSize = datasheet.AdminEntrySize << adminACQLog2
	buf, err := n.space.Ring(n.background, sqSize+acqSize, vfio.DMARead|vfio.DMAWrite)
	if err != nil {
		return nil, err
	}
	a := &admin{regs: &n.regs, sq: buf.Bytes()[:sqSize], acq: buf.Bytes()[sqSize : sqSize+acqSize],
		event: n.event, fail: n.fail, giving: &n.giving, sent: map[uint16]*pendingCommand{}}
	vector := uint32(datasheet.NoVector)
	if len(n.vectors) > 0 {
		vector = uint32(n.vectors[0].number)
	}
	const blk = datasheet.BlockAdmin
	for _, w := range []struct{ reg, v uint64 }{
		{datasheet.RegSQBaseLow, buf.IOVA & 0xffffffff},
		{datasheet.RegSQBaseHigh, buf.IOVA >> 32},
		{datasheet.RegACQBaseLow, (buf.IOVA + sqSize) & 0xffffffff},
		{datasheet.RegACQBaseHigh, (buf.IOVA + sqSize) >> 32},
		{datasheet.RegSQLog2, adminSQLog2},
		{datasheet.RegACQLog2, adminACQLog2},
		{datasheet.RegAdminVector, uint64(vector)},
		{datasheet.RegAdminControl, uint64(datasheet.AdminEnable)},
	} {
		if err := n.regs.write(blk, w.reg, uint32(w.v)); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// maxSampleLatency bounds Options.SampleLatency: one send in a million.
const maxSampleLatency = 20

// sampleVariable is that of the environment which stands for Options.SampleLatency.
const sampleVariable = "TRAPEZE_LATENCY"

// sampleLatency checks the option, or takes the variable of the environment in its place.
func (o *Options) sampleLatency() error {
	if s := os.Getenv(sampleVariable); o.SampleLatency == 0 && s != "" {
		k, err := strconv.Atoi(s)
		if err != nil || k < 1 || k > maxSampleLatency {
			return fmt.Errorf("%w: %s is %q, want 1 to %d", descriptors.ErrInvalidParameter, sampleVariable, s, maxSampleLatency)
		}
		o.SampleLatency = k
	}
	if o.SampleLatency < 0 || o.SampleLatency > maxSampleLatency {
		return fmt.Errorf("%w: SampleLatency %d, want 0 to %d", descriptors.ErrInvalidParameter, o.SampleLatency, maxSampleLatency)
	}
	return nil
}
