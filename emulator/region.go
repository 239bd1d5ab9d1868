package emulator

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/emulator/internal/pciconfig"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/atomicmem"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// allOnes is the value of a read that no device answers.
const allOnes uint32 = 0xffffffff

// setOnes makes p what a read returns that no device answers.
func setOnes(p []byte) {
	for i := range p {
		p[i] = 0xff
	}
}

func (d *Device) Region(index int) (vfio.RegionInfo, error) {
	const op = "describe region"
	if d.closed.Load() {
		return vfio.RegionInfo{}, d.fail(op, vfio.ErrClosed)
	}
	if index < 0 || index >= regionIndexes {
		return vfio.RegionInfo{}, d.fail(op, fmt.Errorf("%w: index %d", vfio.ErrNoSuchRegion, index))
	}
	info := vfio.RegionInfo{Index: index, Size: d.regionSize(index)}
	if info.Size > 0 {
		info.Flags = vfio.RegionRead | vfio.RegionWrite
	}
	if d.shared(index) != nil {
		info.Flags |= vfio.RegionMmap
	}
	return info, nil
}

func (d *Device) regionSize(index int) uint64 {
	switch {
	case index == vfio.RegionConfig:
		return pciconfig.Size
	case index < barCount:
		return d.bars[index].size
	}
	return 0
}

// shared returns the memory behind a region, nil if it cannot be mapped.
func (d *Device) shared(index int) *sharedMemory {
	switch index {
	case vfio.RegionBAR2:
		return d.doorbells
	case vfio.RegionBAR4:
		return d.sram
	}
	return nil
}

// check checks an access to a region.
func (d *Device) check(index int, offset, size uint64) error {
	if d.closed.Load() {
		return vfio.ErrClosed
	}
	if index < 0 || index >= regionIndexes {
		return fmt.Errorf("%w: index %d", vfio.ErrNoSuchRegion, index)
	}
	if n := d.regionSize(index); offset > n || size > n-offset {
		return fmt.Errorf("%w: %d bytes at %#x, region %d has %#x", vfio.ErrOutOfRange, size, offset, index, n)
	}
	return nil
}

// ReadRegion is described at vfio.Device. Reads of 1, 2, 4 and 8 bytes are one
// access each; others are cut into accesses of 4 bytes, and less at ends that
// are not aligned. A device that was removed, or whose memory decoding is off,
// answers with all ones. Configuration space is read at once, whatever else the device does.
func (d *Device) ReadRegion(index int, offset uint64, p []byte) error {
	const op = "read region"
	if index != vfio.RegionConfig {
		d.mu.Lock()
		defer d.mu.Unlock()
	}
	if err := d.check(index, offset, uint64(len(p))); err != nil {
		return d.fail(op, err)
	}
	switch {
	case len(p) == 0: // a region that does not exist has size 0, and allows this
	case d.removed.Load(), index != vfio.RegionConfig && !d.decoding.Load():
		setOnes(p)
	case index == vfio.RegionConfig:
		d.config.Read(offset, p)
	case index == vfio.RegionBAR0:
		eachAccess(offset, p, d.readRegisters)
	case index == vfio.RegionBAR2 && d.doorbells == nil:
		clear(p) // doorbells are for writing
	default:
		copy(p, d.shared(index).bytes[offset:])
	}
	return nil
}

// WriteRegion is described at vfio.Device. Writes are cut into accesses as
// reads are. A write without an answer is lost.
func (d *Device) WriteRegion(index int, offset uint64, p []byte) error {
	const op = "write region"
	if index == vfio.RegionBAR2 {
		return d.writeDoorbells(offset, p)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(index, offset, uint64(len(p))); err != nil {
		return d.fail(op, err)
	}
	switch {
	case len(p) == 0:
	case d.removed.Load(), index != vfio.RegionConfig && !d.decoding.Load():
	case index == vfio.RegionConfig:
		d.writeConfig(offset, p)
	case index == vfio.RegionBAR0:
		// The admin queue's doorbell has the device read host memory.
		d.guard(func() { eachAccess(offset, p, d.writeRegisters) })
	default:
		copy(d.shared(index).bytes[offset:], p)
	}
	return nil
}

// writeDoorbells stores to BAR2. Trapped doorbells take no lock: endpoints do
// not wait for each other.
func (d *Device) writeDoorbells(offset uint64, p []byte) error {
	if d.mapped {
		d.mu.Lock()
		defer d.mu.Unlock()
	}
	if err := d.check(vfio.RegionBAR2, offset, uint64(len(p))); err != nil {
		return d.fail("write region", err)
	}
	if !d.removed.Load() && d.decoding.Load() {
		eachAccess(offset, p, d.storeDoorbell)
	}
	return nil
}

// Ringer is described at vfio.InProcess. It is for doorbells of an engine that Poll steps;
// memory decoding has no effect on it, as on a mapping.
func (d *Device) Ringer(index int, offset uint64) func(value uint32) {
	if index != vfio.RegionBAR2 || d.mapped || d.thread {
		return nil
	}
	return d.engine.Ringer(offset)
}

func (d *Device) Path(endpoint uint32) vfio.Path {
	if d.mapped || d.thread {
		return nil
	}
	if p := d.engine.Path(endpoint, d.host()); p != nil {
		return p
	}
	return nil
}

func (d *Device) CQPath(cq uint32) vfio.CQPath {
	if d.mapped || d.thread {
		return nil
	}
	if p := d.engine.CQPath(cq, d.host()); p != nil {
		return p
	}
	return nil
}

// host has the calls by which paths step the device.
func (d *Device) host() engine.PathHost {
	return engine.PathHost{Gate: &d.gate.bits, Wake: d.Wake, Guard: d.guard, Step: func(endpoint uint32, receive bool) bool {
		if !d.pollable.Load() || d.special.Load() {
			return d.Poll()
		}
		worked, completed := d.stepFor(endpoint, receive)
		if o := d.peer.Load(); o != nil && !completed {
			worked = o.step() || worked
		}
		return worked
	}}
}

func (d *Device) ReadDirect(endpoint, handle uint32, address uint64, into uint32, at uint64, n uint32) bool {
	return !d.mapped && !d.thread && d.engine.ReadDirect(endpoint, handle, address, into, at, n)
}

// storeDoorbell is one store to BAR2.
func (d *Device) storeDoorbell(offset uint64, p []byte) {
	if len(p) != 4 || offset%4 != 0 {
		d.engine.AddCounter(datasheet.CounterBadDoorbells, 1)
		return
	}
	v := binary.LittleEndian.Uint32(p)
	if !d.mapped {
		d.engine.Doorbell(offset, v)
		return
	}
	atomicmem.Store32(datasheet.IndexAt(d.doorbells.bytes[offset:]), v)
	// A host that marks the pages that it has mapped need not mark this one.
	datasheet.SetMarks(d.doorbells.bytes, offset/datasheet.PageSize)
	d.engine.Wake()
}

// eachAccess cuts an access to registers into what the bus carries at once.
func eachAccess(offset uint64, p []byte, access func(offset uint64, p []byte)) {
	switch len(p) {
	case 1, 2, 4, 8:
		access(offset, p)
		return
	}
	for len(p) > 0 {
		n := 1
		switch {
		case offset%4 == 0 && len(p) >= 4:
			n = 4
		case offset%2 == 0 && len(p) >= 2:
			n = 2
		}
		access(offset, p[:n])
		offset, p = offset+uint64(n), p[n:]
	}
}

// MapRegion is described at vfio.Device. The mapping stays valid after the
// device is closed, like one of a kernel's VFIO; memory decoding has no effect
// on it.
func (d *Device) MapRegion(index int, offset, size uint64) (*vfio.Mapping, error) {
	const op = "map region"
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(index, offset, size); err != nil {
		return nil, d.fail(op, err)
	}
	m := d.shared(index)
	switch page := uint64(os.Getpagesize()); {
	case m == nil:
		return nil, d.fail(op, fmt.Errorf("%w: index %d", vfio.ErrNotMappable, index))
	case offset%page != 0 || size%page != 0:
		return nil, d.fail(op, fmt.Errorf("%w: %#x bytes at %#x, pages have %d", vfio.ErrMisaligned, size, offset, page))
	case size == 0:
		return nil, d.fail(op, vfio.ErrBadSize)
	}
	b, err := m.mapPart(offset, size)
	if err != nil {
		return nil, d.fail(op, err)
	}
	return vfio.NewMapping(b, func() error { return os.NewSyscallError("munmap", unix.Munmap(b)) }), nil
}
