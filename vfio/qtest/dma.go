package qtest

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/vfio"
)

// IOVARanges is described at vfio.Device. Devices of one machine have no address in
// common.
func (d *Device) IOVARanges() ([]vfio.IOVARange, error) {
	if d.isClosed() {
		return nil, d.fail("list the IOVA ranges of", vfio.ErrClosed)
	}
	return []vfio.IOVARange{d.m.shares[d.number]}, nil
}

// MapDMA is described at vfio.Device. The memory is moved into the machine's RAM, at
// the offset that is its bus address: what is written to it meanwhile may be lost, its
// file descriptor is of no use until it is unmapped, and a second device cannot have it.
func (d *Device) MapDMA(mem *vfio.Memory, iova uint64, _ vfio.DMAFlags) error {
	op := fmt.Sprintf("map DMA at %#x for", iova)
	done, err := d.change(op)
	if err != nil {
		return err
	}
	defer done()
	share, last := d.m.shares[d.number], iova+mem.Size()-1
	switch {
	case iova%mem.PageSize() != 0:
		return d.fail(op, vfio.ErrMisaligned)
	case iova < share.First || last < iova || last > share.Last:
		return d.fail(op, fmt.Errorf("%w: %#x to %#x, want %#x to %#x", vfio.ErrIOVARange, iova, last, share.First, share.Last))
	}
	for other, m := range d.mapped {
		if iova < other+m.Size() && other <= last {
			return d.fail(op, fmt.Errorf("%w: %#x to %#x", vfio.ErrIOVAInUse, other, other+m.Size()-1))
		}
	}
	if err := mem.Move(d.m.ram.FD(), iova); err != nil {
		return d.fail(op, err)
	}
	d.mapped[iova] = mem
	return nil
}

// UnmapDMA is described at vfio.Device.
func (d *Device) UnmapDMA(iova, size uint64) error {
	op := fmt.Sprintf("unmap DMA at %#x for", iova)
	done, err := d.change(op)
	if err != nil {
		return err
	}
	defer done()
	mem := d.mapped[iova]
	if mem == nil || mem.Size() != size {
		return d.fail(op, vfio.ErrNotMapped)
	}
	// What was posted may make the device access the memory; if QEMU is lost, nothing
	// can.
	_ = d.m.link.flush()
	if err := mem.MoveBack(); err != nil {
		return d.fail(op, err)
	}
	delete(d.mapped, iova)
	return nil
}
