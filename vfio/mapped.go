package vfio

import (
	"errors"
	"fmt"
	"os"
)

var errShortMap = errors.New("less of a BAR is mapped than was asked for")

// MappedBAR holds the mapped parts of a BAR. Accesses elsewhere are calls of the device. The
// zero value has nothing mapped.
type MappedBAR struct{ parts []mappedPart }

type mappedPart struct {
	Area
	m *Mapping
}

// MapBAR maps what can be mapped of BAR index, which info describes: all of it, or the areas
// that the device names. It fails if the device maps less than it was asked for. Areas that are not whole pages, or not in the BAR, and those that
// the device does not map after all, are left out.
func MapBAR(dev Device, index int, info RegionInfo) (MappedBAR, error) {
	var b MappedBAR
	if info.Flags&RegionMmap == 0 {
		return b, nil
	}
	areas := info.Sparse
	if len(areas) == 0 {
		areas = []Area{{Size: info.Size}}
	}
	page := uint64(os.Getpagesize())
	for _, a := range areas {
		if a.Size == 0 || a.Offset%page != 0 || a.Size%page != 0 || a.Offset > info.Size || a.Size > info.Size-a.Offset {
			continue
		}
		m, err := dev.MapRegion(index, a.Offset, a.Size)
		if err != nil {
			continue
		}
		b.parts = append(b.parts, mappedPart{a, m})
		if n := len(m.Bytes()); uint64(n) < a.Size {
			return MappedBAR{}, errors.Join(fmt.Errorf("%w: %#x of %#x bytes at %#x of BAR%d", errShortMap, n, a.Size, a.Offset, index), b.Close())
		}
	}
	return b, nil
}

// Register returns the register of 32 bits at an offset, nil if it is not mapped. The
// pointer must not be used after Close.
func (b *MappedBAR) Register(offset uint64) *uint32 {
	for _, p := range b.parts {
		if offset >= p.Offset && offset-p.Offset < p.Size {
			if reg, err := p.m.Register32(offset - p.Offset); err == nil {
				return reg
			}
		}
	}
	return nil
}

// Window returns n bytes at an offset, nil if they are not all in one mapping.
func (b *MappedBAR) Window(offset uint64, n int) []byte {
	for _, p := range b.parts {
		if offset >= p.Offset && offset-p.Offset <= p.Size && uint64(n) <= p.Size-(offset-p.Offset) {
			return p.m.Bytes()[offset-p.Offset:][:n]
		}
	}
	return nil
}

// Close unmaps everything.
func (b *MappedBAR) Close() error {
	var errs []error
	for _, p := range b.parts {
		errs = append(errs, p.m.Close())
	}
	b.parts = nil
	return errors.Join(errs...)
}
