package emulator

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

func (d *Device) IOVARanges() ([]vfio.IOVARange, error) {
	if d.closed.Load() {
		return nil, d.fail("list IOVA ranges", vfio.ErrClosed)
	}
	return vfio.PlainIOVAs(), nil
}

// MapDMA is described at vfio.Device. On a wire that shares memory the peer can
// read it from then on, if it can be exported (Sharing).
func (d *Device) MapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	const op = "map DMA"
	return d.mapping(op, func() (err error) {
		if hint, err := vfio.CheckDMA(mem, iova, flags, vfio.PlainIOVAs(), datasheet.PageSize); err != nil {
			return d.failHint(op, err, hint)
		}
		b := mem.Bytes()
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
