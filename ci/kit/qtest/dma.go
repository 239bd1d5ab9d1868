package qtest

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/vfio"
)

// share returns the bus addresses that device n can have mapped, and whether they are
// offsets in RAM as the device goes around the IOMMU.
func (m *Machine) share(n int) (s vfio.IOVARange, direct bool) {
	if !m.direct[n] {
		return vfio.IOVARange{First: window + reserved, Last: window + windowSize - 1}, false
	}
	first := ramBegin(len(m.names)) + m.size // behind what those have that do not
	for _, d := range m.direct[:n] {
		if d {
			first += m.size
		}
	}
	return vfio.IOVARange{First: first, Last: first + m.size - 1}, true
}

func (d *Device) IOVARanges() ([]vfio.IOVARange, error) {
	if d.isClosed() {
		return nil, d.fail("list the IOVA ranges of", vfio.ErrClosed)
	}
	share, _ := d.m.share(d.number)
	return []vfio.IOVARange{share}, nil
}

// place is where memory is in RAM, and for how many mappings.
type place struct {
	at     uint64
	users  int
	direct bool // the driver alone has chosen at
}

// putAt moves memory to a place in RAM.
func (m *Machine) putAt(mem *vfio.Memory, at uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := mem.Move(m.ram.FD(), at); err != nil {
		return err
	}
	m.placed[mem] = &place{at: at, users: 1, direct: true}
	return nil
}

// put moves memory into RAM, unless it is there, and returns where it is.
func (m *Machine) put(mem *vfio.Memory) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.placed[mem]
	if p == nil {
		at, err := m.free.Alloc(mem.Size(), mem.PageSize())
		if err != nil {
			return 0, fmt.Errorf("%w: Options.RAM is too small: %w", vfio.ErrNoDMAMemory, err)
		}
		if err := mem.Move(m.ram.FD(), at); err != nil {
			return 0, errors.Join(err, m.free.Free(at, mem.Size()))
		}
		p = &place{at: at}
		m.placed[mem] = p
	}
	p.users++
	return p.at, nil
}

// takeBack undoes put.
func (m *Machine) takeBack(mem *vfio.Memory) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.placed[mem]
	if p.users--; p.users > 0 {
		return nil
	}
	delete(m.placed, mem)
	err := mem.MoveBack()
	if !p.direct {
		err = errors.Join(err, m.free.Free(p.at, mem.Size()))
	}
	return err
}

// MapDMA is described at vfio.Device. The memory is moved into the machine's RAM: what
// is written to it meanwhile may be lost, its file descriptor is of no use until it is
// unmapped, and devices outside the machine cannot have it. It fails with
// ErrNoDMAMemory if RAM is full.
func (d *Device) MapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	return d.change(fmt.Sprintf("map DMA at %#x for", iova), func() error { return d.mapAt(mem, iova, flags) })
}

func (d *Device) mapAt(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	share, direct := d.m.share(d.number)
	last := iova + mem.Size() - 1
	switch {
	case iova%mem.PageSize() != 0:
		return vfio.ErrMisaligned
	case iova < share.First || last < iova || last > share.Last:
		return fmt.Errorf("%w: %#x to %#x, want %#x to %#x", vfio.ErrIOVARange, iova, last, share.First, share.Last)
	}
	for other, m := range d.mapped {
		if iova < other+m.Size() && other <= last {
			return fmt.Errorf("%w: %#x to %#x", vfio.ErrIOVAInUse, other, other+m.Size()-1)
		}
	}
	if direct {
		if err := d.m.putAt(mem, iova); err != nil {
			return err
		}
	} else {
		at, err := d.m.put(mem)
		if err != nil {
			return err
		}
		d.m.setPages(d.number, iova, at, mem.Size(), flags)
	}
	d.mapped[iova] = mem
	return nil
}

func (d *Device) UnmapDMA(iova, size uint64) error {
	return d.change(fmt.Sprintf("unmap DMA at %#x for", iova), func() error {
		mem := d.mapped[iova]
		if mem == nil || mem.Size() != size {
			return vfio.ErrNotMapped
		}
		return d.unmap(iova, mem)
	})
}

// unmap takes memory away from the device.
func (d *Device) unmap(iova uint64, mem *vfio.Memory) error {
	if _, direct := d.m.share(d.number); !direct {
		d.m.setPages(d.number, iova, 0, mem.Size(), 0)
	}
	err := d.m.write("writeq", iommu+iommuTLB, allTLB)
	if cause := d.m.link.lost(); cause != nil && errors.Is(err, cause) {
		err = nil // of a machine that is lost, memory can be taken away too
	}
	delete(d.mapped, iova)
	return errors.Join(err, d.m.takeBack(mem))
}
