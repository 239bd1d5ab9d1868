package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// DMAMapping is a mapping of MapDMA, see MapDMABatch.
type DMAMapping struct {
	Memory *vfio.Memory
	IOVA   uint64
	Flags  vfio.DMAFlags
}

func (m DMAMapping) String() string {
	return fmt.Sprintf("%#x bytes at IOVA %#x", m.Memory.Size(), m.IOVA)
}

// MapDMA lets the device access memory. Without an IOMMU iova must be what
// PhysicalAddress returns.
func (d *Device) MapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	return d.MapDMABatch([]DMAMapping{{mem, iova, flags}})
}

// MapDMABatch maps all of the list, each as by MapDMA, or nothing of it. It
// checks all before it maps any, and looks first whether the kernel takes so
// many mappings.
func (d *Device) MapDMABatch(list []DMAMapping) error {
	done, err := d.use("map DMA memory for")
	if err != nil {
		return err
	}
	defer done()
	if len(list) == 0 {
		return nil
	}
	d.domain.mu.Lock()
	defer d.domain.mu.Unlock()
	for i, m := range list {
		if err := d.checkDMA(d.domain.known, m, list[:i]); err != nil {
			return err
		}
	}
	if len(list) > 1 {
		if l, err := d.domain.limits(); err == nil && l.available != unknown && l.available < len(list) {
			return d.fail(fmt.Sprintf("map %d pieces of DMA memory for", len(list)), unix.ENOSPC, d.hintMappings())
		}
	}
	for i, m := range list {
		if err := d.domain.mapDMA(m.Memory, m.IOVA, m.Flags); err != nil {
			err = d.explainMap(m, err)
			for _, before := range list[:i] {
				err = errors.Join(err, d.unmap(before.IOVA, before.Memory.Size()))
			}
			return err
		}
		d.domain.add(mapped{m.IOVA, m.Memory.Size(), d})
	}
	return nil
}

// checkDMA says what is wrong with a mapping; before are those of the same
// batch.
func (d *Device) checkDMA(l limits, m DMAMapping, before []DMAMapping) error {
	if m.Memory == nil || m.Memory.Address() == 0 {
		return d.fail("map DMA memory for", vfio.ErrClosed, "the memory is closed")
	}
	op := fmt.Sprintf("map %v for", m)
	size, granule := m.Memory.Size(), l.granule()
	switch {
	case m.Flags == 0 || m.Flags&^(vfio.DMARead|vfio.DMAWrite) != 0:
		return d.fail(op, unix.EINVAL, fmt.Sprintf("flags %#x: the device may read, write or both", uint32(m.Flags)))
	case m.IOVA%granule != 0 || size%granule != 0 || m.Memory.Address()%granule != 0:
		return d.fail(op, vfio.ErrMisaligned, fmt.Sprintf("addresses and sizes are multiples of %#x here", granule))
	case !holds(l.ranges, m.IOVA, size):
		return d.fail(op, vfio.ErrIOVARange, hintRanges(l.ranges))
	}
	if other, ok := d.domain.overlaps(m.IOVA, size); ok {
		hint := fmt.Sprintf("%#x bytes are mapped at %#x", other.size, other.iova)
		if other.owner != d {
			hint += " for " + other.owner.fn.Address + ", which is in the same IOMMU group: keep to IOVARanges"
		}
		return d.fail(op, vfio.ErrIOVAInUse, hint)
	}
	for _, b := range before {
		if m.IOVA-b.IOVA < b.Memory.Size() || b.IOVA-m.IOVA < size {
			return d.fail(op, vfio.ErrIOVAInUse, fmt.Sprintf("the same call maps %v", b))
		}
	}
	return nil
}

// holds reports whether one of the ranges has all of size bytes at iova. Ranges
// that touch count as one.
func holds(ranges []vfio.IOVARange, iova, size uint64) bool {
	last := iova + size - 1
	if last < iova {
		return false
	}
	for _, r := range ranges {
		if iova < r.First || iova > r.Last {
			continue
		}
		if last <= r.Last {
			return true
		}
		iova = r.Last + 1
	}
	return false
}

func hintRanges(ranges []vfio.IOVARange) string {
	var b strings.Builder
	b.WriteString("usable:")
	for _, r := range ranges {
		fmt.Fprintf(&b, " %#x to %#x", r.First, r.Last)
	}
	return b.String()
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
	i, ok := d.domain.find(iova)
	if !ok || d.domain.maps[i].size != size || d.domain.maps[i].owner != d {
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
		d.domain.remove(iova)
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
	return slices.Clone(shareOf(l.ranges, d.part, d.parts, l.granule())), nil
}

// DMAAvailable returns how many more mappings the kernel takes, for all
// functions of the group together. ok is false if it does not say: there may be
// no limit but memory.
func (d *Device) DMAAvailable() (n int, ok bool, err error) {
	op := "ask for the number of mappings of"
	done, err := d.use(op)
	if err != nil {
		return 0, false, err
	}
	defer done()
	l, err := d.domain.limits()
	if err != nil {
		return 0, false, d.fail(op, err, "")
	}
	return max(l.available, 0), l.available != unknown, nil
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
