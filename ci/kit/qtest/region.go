package qtest

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/trapeze-nic/trapeze/vfio"
)

func (d *Device) Region(index int) (vfio.RegionInfo, error) {
	if index < 0 || index >= regions {
		return vfio.RegionInfo{}, d.fail("describe region of", fmt.Errorf("%w %d", vfio.ErrNoSuchRegion, index))
	}
	if d.isClosed() {
		return vfio.RegionInfo{}, d.fail("describe region of", vfio.ErrClosed)
	}
	r := vfio.RegionInfo{Index: index, Size: d.size(index)}
	if r.Size != 0 {
		r.Flags = vfio.RegionRead | vfio.RegionWrite
	}
	return r, nil
}

func (d *Device) size(index int) uint64 {
	switch {
	case index < len(d.bars):
		return d.bars[index].size
	case index == vfio.RegionConfig:
		return vfio.ConfigExtendedSize
	}
	return 0
}

func (d *Device) isClosed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}

// MapRegion fails: registers are reached by requests only.
func (d *Device) MapRegion(index int, _, _ uint64) (*vfio.Mapping, error) {
	if _, err := d.Region(index); err != nil {
		return nil, err
	}
	return nil, d.fail("map region of", vfio.ErrNotMappable)
}

// ReadRegion implements vfio.Device. As with VFIO, an MSI-X table reads as ones.
func (d *Device) ReadRegion(index int, offset uint64, p []byte) error {
	const op = "read region of"
	b, err := d.window(op, index, offset, len(p))
	if err != nil {
		return err
	}
	if index == vfio.RegionConfig && len(p) > 8 {
		err = d.m.readMemory(b.address+offset, p)
	} else {
		err = b.each(offset, p, func(at uint64, p []byte) error {
			if d.inTable(index, at, len(p)) || d.m.unplugged[d.number].Load() {
				little(p, ^uint64(0))
				return nil
			}
			v, err := d.m.read(request("read", len(p)), b.address+at, len(p))
			little(p, v)
			return err
		})
	}
	return d.fail(op, err)
}

// WriteRegion implements vfio.Device. As with VFIO, writes to an MSI-X table, to its
// capability's control and to BARs are dropped: they are the back end's.
func (d *Device) WriteRegion(index int, offset uint64, p []byte) error {
	const op = "write region of"
	b, err := d.window(op, index, offset, len(p))
	if err != nil {
		return err
	}
	err = b.each(offset, p, func(at uint64, p []byte) error {
		var v [8]byte
		copy(v[:], p)
		value := binary.LittleEndian.Uint64(v[:])
		if d.inTable(index, at, len(p)) || index == vfio.RegionConfig && d.kept(at, len(p)) {
			return nil
		}
		return d.m.write(request("write", len(p)), b.address+at, value)
	})
	return d.fail(op, err)
}

// window returns where a region is on the buses, if an access lies inside.
func (d *Device) window(op string, index int, offset uint64, n int) (bar, error) {
	r, err := d.Region(index)
	switch {
	case err != nil:
		return bar{}, err
	case offset > r.Size || uint64(n) > r.Size-offset:
		return bar{}, d.fail(op, fmt.Errorf("%w: %d bytes at %#x of region %d, which has %#x", vfio.ErrOutOfRange, n, offset, index, r.Size))
	case index == vfio.RegionConfig:
		return bar{address: function(d.number)}, nil
	case index < len(d.bars):
		return d.bars[index], nil
	}
	return bar{}, nil // of size 0, and so nothing is read
}

// each cuts an access into those that a processor makes: of 1, 2, 4 or 8 bytes, at a
// multiple of that. Configuration space has none of 8.
func (b bar) each(offset uint64, p []byte, access func(at uint64, p []byte) error) error {
	largest := 8
	if b.size == 0 {
		largest = 4
	}
	for len(p) > 0 {
		n := min(largest, 1<<min(bits.TrailingZeros64(offset), 3), 1<<(bits.Len(uint(len(p)))-1))
		if err := access(offset, p[:n]); err != nil {
			return err
		}
		offset, p = offset+uint64(n), p[n:]
	}
	return nil
}

// request returns the name of a request for n bytes.
func request(what string, n int) string {
	return what + map[int]string{1: "b", 2: "w", 4: "l", 8: "q"}[n]
}

// inTable reports whether an access touches the MSI-X table.
func (d *Device) inTable(index int, at uint64, n int) bool {
	if d.msix == nil || index != d.msix.TableBAR {
		return false
	}
	table := uint64(d.msix.TableOffset)
	return at < table+msixEntry*uint64(d.msix.Vectors) && at+uint64(n) > table
}

// kept reports whether an access to configuration space touches what the back end
// keeps for itself.
func (d *Device) kept(at uint64, n int) bool {
	end := at + uint64(n)
	return at < 0x28 && end > 0x10 || at < 0x34 && end > 0x30 ||
		d.msix != nil && at < d.msixControl+2 && end > d.msixControl
}
