package drivercost

import (
	"context"
	"encoding/binary"
	"errors"

	// Make "emu:" addresses known.
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// device is a NIC that answers admin commands and moves nothing: an emulated one,
// but for its doorbells, which are memory that is not read. Of the capabilities
// of devices in the same process it has none, as hardware has none.
type device struct {
	vfio.Device
	doorbells *vfio.Memory
	mapped    *vfio.Memory // what was mapped for DMA last
}

func newDevice(ctx context.Context) (*device, error) {
	emulated, err := vfio.Open(ctx, "emu:?wire=loop&engine=thread&doorbells=mapped&vis=2&cqs=1")
	if err != nil {
		return nil, err
	}
	d := &device{Device: emulated}
	bar, err := d.Region(vfio.RegionBAR2)
	if err == nil {
		d.doorbells, err = vfio.AllocMemory(bar.Size, vfio.MemoryOptions{Huge: vfio.HugeNever})
	}
	if err != nil {
		return nil, errors.Join(err, emulated.Close())
	}
	return d, nil
}

// ReadRegion is that of a device that need not be told which page was stored to
// (SPEC.md 3.4): hardware sees each store.
func (d *device) ReadRegion(index int, offset uint64, p []byte) error {
	err := d.Device.ReadRegion(index, offset, p)
	if index == vfio.RegionBAR0 && offset == datasheet.IdentityOffset+datasheet.RegFeaturesLow && len(p) == 4 {
		binary.LittleEndian.PutUint32(p, binary.LittleEndian.Uint32(p)&^uint32(datasheet.FeatureDoorbellMarks))
	}
	return err
}

// MapRegion maps the doorbells.
func (d *device) MapRegion(index int, offset, size uint64) (*vfio.Mapping, error) {
	if index != vfio.RegionBAR2 {
		return d.Device.MapRegion(index, offset, size)
	}
	if bar := d.doorbells.Size(); offset > bar || size > bar-offset {
		return nil, vfio.ErrOutOfRange
	}
	return vfio.NewMapping(d.doorbells.Bytes()[offset:][:size], nil), nil
}

// MapDMA takes note of the memory.
func (d *device) MapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	d.mapped = mem
	return d.Device.MapDMA(mem, iova, flags)
}

// Close closes the device and its doorbells.
func (d *device) Close() error { return errors.Join(d.Device.Close(), d.doorbells.Close()) }
