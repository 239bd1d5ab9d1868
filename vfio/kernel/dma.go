package kernel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/vfio"
)

// MapDMA lets the device access memory. Without an IOMMU iova must be what
// PhysicalAddress returns.
func (d *Device) MapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	done, err := d.use("map DMA memory for")
	if err != nil {
		return err
	}
	defer done()
	d.domain.mu.Lock()
	defer d.domain.mu.Unlock()
	l := d.domain.known
	if hint, err := vfio.CheckDMA(mem, iova, flags, l.ranges, l.granule()); err != nil {
		return d.fail("map DMA memory for", err, hint)
	}
	op := fmt.Sprintf("map %#x bytes at IOVA %#x for", mem.Size(), iova)
	if others := d.domain.maps.Within(iova, iova+(mem.Size()-1)); len(others) > 0 {
		other := others[0]
		hint := fmt.Sprintf("%#x bytes are mapped at %#x", other.size, other.iova)
		if other.owner != d {
			hint += " for " + other.owner.fn.Address + ", which is in the same IOMMU group: keep to IOVARanges"
		}
		return d.fail(op, vfio.ErrIOVAInUse, hint)
	}
	if err := d.domain.mapDMA(mem, iova, flags); err != nil {
		return d.explainMap(op, mem.Size(), err)
	}
	d.domain.maps.Insert(&mapped{iova, mem.Size(), d})
	return nil
}

// UnmapDMA ends what one MapDMA began.
func (d *Device) UnmapDMA(iova, size uint64) error {
	done, err := d.use(fmt.Sprintf("unmap %#x bytes at IOVA %#x for", size, iova))
	if err != nil {
		return err
	}
	defer done()
	d.domain.mu.Lock()
	defer d.domain.mu.Unlock()
	if m := d.domain.maps.Within(iova, iova); len(m) == 0 || *m[0] != (mapped{iova, size, d}) {
		return d.fail(fmt.Sprintf("unmap %#x bytes at IOVA %#x for", size, iova), vfio.ErrNotMapped,
			"give the address and size of one MapDMA")
	}
	return d.unmap(iova, size)
}

// unmap unmaps what is mapped. If the kernel does not know it, it is forgotten
// all the same. The caller holds the domain's lock.
func (d *Device) unmap(iova, size uint64) error {
	err := d.domain.unmapDMA(iova, size)
	if err == nil || errors.Is(err, vfio.ErrNotMapped) {
		d.domain.maps.Remove(iova, iova)
	}
	if err != nil {
		return d.fail(fmt.Sprintf("unmap %#x bytes at IOVA %#x for", size, iova), err, "")
	}
	return nil
}

// unmapAll unmaps everything that the device has mapped.
func (d *Device) unmapAll() error {
	d.domain.mu.Lock()
	defer d.domain.mu.Unlock()
	var errs []error
	for _, m := range d.domain.owned(d) {
		errs = append(errs, d.unmap(m.iova, m.size))
		// The address space may live on, with other functions; what could not
		// be unmapped must not be mapped over, but has no owner any more.
	}
	return errors.Join(errs...)
}

// IOVARanges lists the bus addresses that can be mapped. In an IOMMU group of
// several functions each has its own part of them, which does not change.
func (d *Device) IOVARanges() ([]vfio.IOVARange, error) {
	done, err := d.use("ask for the IOVA ranges of")
	if err != nil {
		return nil, err
	}
	defer done()
	d.domain.mu.Lock()
	defer d.domain.mu.Unlock()
	l := d.domain.known
	if d.info.Backend == backendNoIOMMU {
		return slices.Clone(l.ranges), nil
	}
	return vfio.DivideIOVAs(l.ranges, d.part, d.parts, l.granule()), nil
}

// Unguarded reports whether there is no IOMMU, see vfio.Physical.
func (d *Device) Unguarded() bool {
	_, ok := d.domain.space.(*unguardedSpace)
	return ok
}

// PhysicalAddress returns the bus address of memory where there is no IOMMU:
// its physical address. The memory must come from huge pages and lie in one
// piece, which is sure for one huge page only. With an IOMMU it fails with
// vfio.ErrNotSupported: the caller chooses.
func (d *Device) PhysicalAddress(mem *vfio.Memory) (uint64, error) {
	op := "find the physical address of memory for"
	done, err := d.use(op)
	if err != nil {
		return 0, err
	}
	defer done()
	s, ok := d.domain.space.(*unguardedSpace)
	if !ok {
		return 0, d.fail(op, vfio.ErrNotSupported, "the IOMMU translates: choose an address within IOVARanges")
	}
	if mem.Address() == 0 {
		return 0, d.fail(op, vfio.ErrClosed, "the memory is closed")
	}
	address, err := s.physical(mem)
	if err != nil {
		return 0, d.fail(op, err, "")
	}
	return address, nil
}
