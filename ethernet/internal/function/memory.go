package function

import (
	"errors"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// mapping is memory that the device can reach.
type mapping struct {
	memory *vfio.Memory
	iova   uint64
	pool   *ethernet.Pool // nil if the memory is ours
}

// Alloc allocates zeroed memory for both sides to write, rounded up to whole pages, and
// returns it and its bus address. It stays until Close.
func (f *Function) Alloc(size uint64) ([]byte, uint64, error) {
	o := vfio.MemoryOptions{Huge: vfio.HugeNever}
	if f.physical != nil {
		o.Huge = vfio.HugeRequire
	}
	m, err := vfio.AllocMemory(size, o)
	if err != nil {
		return nil, 0, err
	}
	iova, err := f.mapMemory(m, nil)
	if err != nil {
		return nil, 0, errors.Join(err, m.Close())
	}
	return m.Bytes(), iova, nil
}

// MapPool lets the device reach the buffers of a pool, and returns the bus address of the
// first. It stays until Close.
func (f *Function) MapPool(p *ethernet.Pool) (uint64, error) {
	if err := p.Hold(); err != nil {
		return 0, err
	}
	iova, err := f.mapMemory(p.Memory(), p)
	if err != nil {
		p.Release()
	}
	return iova, err
}

func (f *Function) mapMemory(m *vfio.Memory, p *ethernet.Pool) (iova uint64, err error) {
	if f.physical != nil {
		iova, err = f.physical.PhysicalAddress(m)
	} else {
		iova, err = f.iovas.Alloc(m.Size(), m.PageSize())
	}
	if err != nil {
		return 0, err
	}
	if err := f.dev.MapDMA(m, iova, vfio.DMARead|vfio.DMAWrite); err != nil {
		return 0, err
	}
	f.mappings = append(f.mappings, mapping{m, iova, p})
	return iova, nil
}

// unmapAll takes all memory from the device, which has been stopped, and frees what is
// ours. What cannot be taken away stays.
func (f *Function) unmapAll() error {
	var errs []error
	for _, m := range f.mappings {
		if err := f.dev.UnmapDMA(m.iova, m.memory.Size()); err != nil && !errors.Is(err, ethernet.ErrDeviceGone) {
			errs = append(errs, err)
			continue
		}
		if m.pool != nil {
			m.pool.Release()
		} else {
			errs = append(errs, m.memory.Close())
		}
	}
	f.mappings = nil
	return errors.Join(errs...)
}
