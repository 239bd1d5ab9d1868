package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// near is a region in which something of a queue was found, good as long as stamp is that of the
// regions.
type near struct {
	stamp   uint64
	handle  uint32
	write   bool // it may be written to
	address uint64
	starts  uint64 // descriptors with a data segment start before this offset; zero if none may
	memory  []byte
}

// Handle is that of the region.
func (n *near) Handle() uint32 { return n.handle }

// descriptorSize is that of the smallest descriptor.
const descriptorSize = datasheet.ControlSegmentSize + datasheet.DataSegmentSize

// Near is the n bytes that reach finds, if they are in one piece of the host's memory of which that
// is known; else nil. The capacity ends with the region. It looks at the region in which it found some last
// before it looks for another.
func (m *Regions) Near(last *near, handle, tag uint32, address, n uint64, write bool) []byte {
	if last.handle != handle || last.stamp != m.Stamp {
		r, _ := m.Reach(handle, tag, address, n, write)
		if r == nil || r.Eager != nil || r.Device || r.Epoch != m.Epoch || r.Whole == nil {
			return nil
		}
		*last = near{m.Stamp, handle, r.access&datasheet.AccessReadOnly == 0, r.address, 0, r.Whole}
		if size := uint64(len(r.Whole)); last.write && size >= descriptorSize && aligned(r.Whole, r.address) {
			last.starts = size - descriptorSize + 1
		}
	}
	off := address - last.address
	if size := uint64(len(last.memory)); off > size || n > size-off || write && !last.write {
		return nil
	}
	return last.memory[off : off+n]
}

// Find is Near that also looks whether a region of which that is not known is in one piece.
func (m *Regions) Find(last *near, handle, tag uint32, address, n uint64, write bool) []byte {
	b := m.Near(last, handle, tag, address, n, write)
	if b != nil {
		return b
	}
	if r, off := m.Reach(handle, tag, address, n, write); r != nil && r.Eager == nil && !r.Device && n != 0 && r.Epoch != m.Epoch {
		if m.Window(r, off, n, write) != nil {
			b = m.Near(last, handle, tag, address, n, write)
		}
	}
	return b
}
