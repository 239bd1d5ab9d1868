package emulator

import (
	"errors"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// iovaRanges are the addresses that an Intel or AMD IOMMU with 39 bits of address, the least
// that is found, gives its users: address 0 stays free for "none", and writes
// to 0xfeexxxxx are interrupts (Intel SDM vol. 3, 11.11.1).
var iovaRanges = []vfio.IOVARange{
	{First: datasheet.PageSize, Last: 0xfedfffff},
	{First: 0xfef00000, Last: 1<<39 - 1},
}

// IOVARanges is described at vfio.Device.
func (d *Device) IOVARanges() ([]vfio.IOVARange, error) {
	if d.closed.Load() {
		return nil, d.fail("list IOVA ranges", vfio.ErrClosed)
	}
	return slices.Clone(iovaRanges), nil
}

// MapDMA is described at vfio.Device. On a wire that shares memory the peer can
// read it from then on, if it can be exported (Sharing).
func (d *Device) MapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	const op = "map DMA"
	return d.mapping(op, func() (err error) {
		if mem == nil {
			return vfio.ErrNoDMAMemory
		}
		b := mem.Bytes()
		if len(b) == 0 {
			return d.failHint(op, vfio.ErrNoDMAMemory, "the memory has been closed")
		}
		if flags&(vfio.DMARead|vfio.DMAWrite) == 0 || flags&^(vfio.DMARead|vfio.DMAWrite) != 0 {
			return d.failHint(op, fmt.Errorf("%w: flags %#x", vfio.ErrNotSupported, uint32(flags)), "use DMARead, DMAWrite or both")
		}
		if err := checkIOVA(iova, uint64(len(b))); err != nil {
			return err
		}
		d.engine.Exclusive(func() { err = d.iommu.add(b, iova, flags) })
		if errors.Is(err, ErrMemory) {
			return d.failHint(op, err, "register less at a time, or have the agent's file grant more memory")
		}
		if err != nil {
			return fmt.Errorf("%w: %#x to %#x", err, iova, iova+uint64(len(b))-1)
		}
		if mem.FD() < 0 {
			d.foreign.Store(true)
			d.regate()
		}
		d.share(mem, iova, flags)
		return nil
	})
}

// UnmapDMA is described at vfio.Device. On a wire that shares memory it waits until
// the peer no longer reads it: some microseconds, and if the peer does not answer 3
// seconds, after which it is disconnected.
func (d *Device) UnmapDMA(iova, size uint64) error {
	const op = "unmap DMA"
	return d.mapping(op, func() (err error) {
		d.engine.Exclusive(func() { err = d.iommu.remove(iova, size) })
		if err != nil {
			return d.failHint(op, fmt.Errorf("%w: %#x bytes at %#x", err, size, iova), "unmap exactly what one MapDMA mapped")
		}
		d.unshare(iova)
		return nil
	})
}

// checkIOVA checks a range of bus addresses; size is not zero.
func checkIOVA(iova, size uint64) error {
	if iova%datasheet.PageSize != 0 || size%datasheet.PageSize != 0 {
		return fmt.Errorf("%w: %#x bytes at IOVA %#x, pages have %d", vfio.ErrMisaligned, size, iova, datasheet.PageSize)
	}
	last := iova + size - 1
	for _, r := range iovaRanges {
		if iova >= r.First && last <= r.Last && last >= iova {
			return nil
		}
	}
	return fmt.Errorf("%w: %#x bytes at %#x", vfio.ErrIOVARange, size, iova)
}
