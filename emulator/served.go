package emulator

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/buserror"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// The methods in this file belong to vfiouser.ServedDevice, beyond
// vfio.Device: a Device can be put behind a socket. It must run on a thread,
// with doorbells mapped or not.

// RegionFile is described at vfiouser.ServedDevice. The doorbells, if they are
// mapped, and the SRAM have a file.
func (d *Device) RegionFile(index int) (fd int, offset uint64, err error) {
	const op = "share region"
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.check(index, 0, 0); err != nil {
		return -1, 0, d.fail(op, err)
	}
	m := d.shared(index)
	if m == nil {
		return -1, 0, d.fail(op, fmt.Errorf("%w: index %d", vfio.ErrNotMappable, index))
	}
	return m.fd, 0, nil
}

func (d *Device) MapWindow(iova uint64, window []byte, flags vfio.DMAFlags) error {
	return d.mapping("map window", func() (err error) {
		if iova%datasheet.PageSize != 0 || len(window)%datasheet.PageSize != 0 {
			err = vfio.ErrMisaligned
		} else {
			d.engine.Exclusive(func() { err = d.iommu.addWindow(window, iova, flags) })
		}
		if err != nil {
			return fmt.Errorf("%w: %#x bytes at %#x", err, len(window), iova)
		}
		return nil
	})
}

func (d *Device) UnmapWindows(first, last uint64) error {
	return d.mapping("unmap windows", func() error {
		d.engine.Exclusive(func() { d.iommu.removeWindows(first, last) })
		return nil
	})
}

func (d *Device) Renew(ctx context.Context) error {
	if err := d.Reset(ctx); err != nil {
		return err
	}
	return d.locked("renew", func() error {
		sram, doorbells, err := d.newMemory()
		if err != nil {
			return err
		}
		d.errorEvent.set(trigger{})
		d.requestEvent.set(trigger{})
		d.maps.Lock()
		defer d.maps.Unlock()
		d.unshareAll()
		d.engine.Exclusive(func() {
			d.iommu.clear()
			copy(sram.bytes, d.sram.bytes[:d.processor.Kept()])
			d.sram, sram = sram, d.sram
			_ = d.engine.MapSRAM(d.sram.bytes, d.processor.Used()) // there was room before
			if doorbells != nil {
				d.doorbells, doorbells = doorbells, d.doorbells
				d.engine.MapDoorbells(d.doorbells.bytes)
			}
		})
		d.processor.Move(d.sram.bytes)
		sram.close()
		doorbells.close()
		return nil
	})
}

// guard runs f, which may touch host memory. If that has vanished, as a client's and a
// program's own can, the device stops with a fault until it is reset.
func (d *Device) guard(f func()) {
	if buserror.Catch(f) == nil {
		return
	}
	d.engine.Reset()
	d.engine.Exclusive(func() { d.admin.fail(datasheet.FaultMemory, 0) })
}
