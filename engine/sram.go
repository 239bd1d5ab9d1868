package engine

import (
	"slices"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// sramGranule is the unit of device memory that is given out, in bytes: a cache line.
const sramGranule = 64

// sram is the part of device memory (BAR4) that endpoints and regions get pieces of. What
// stands before it, control programs and their mailbox, is the NIC processor's.
type sram struct {
	bytes []byte // all of BAR4
	from  uint64 // offset of the first byte that is given out
	holes []span // what is free, in order, none next to another
}

// span is a piece of device memory, by offset in BAR4.
type span struct{ at, size uint64 }

// clear takes back everything that was given out.
func (s *sram) clear() {
	s.holes = nil
	if size := uint64(len(s.bytes)); size > s.from {
		s.holes = []span{{s.from, size - s.from}}
	}
}

// free is how many bytes are not given out; they need not be in one piece.
func (s *sram) free() (n uint64) {
	for _, h := range s.holes {
		n += h.size
	}
	return n
}

// alloc gives out size bytes at a multiple of align, a power of two of at least
// sramGranule, zeroed: the first that fit. It returns false if there are none.
func (s *sram) alloc(size, align uint64) (span, bool) {
	if size == 0 || size > uint64(len(s.bytes)) {
		return span{}, false
	}
	size = (size + sramGranule - 1) &^ (sramGranule - 1)
	for i, h := range s.holes {
		at := (h.at + align - 1) &^ (align - 1)
		if at-h.at > h.size || size > h.size-(at-h.at) {
			continue
		}
		var left []span
		if at > h.at {
			left = append(left, span{h.at, at - h.at})
		}
		if end := at + size; end < h.at+h.size {
			left = append(left, span{end, h.at + h.size - end})
		}
		s.holes = slices.Replace(s.holes, i, i+1, left...)
		got := span{at, size}
		clear(s.memory(got))
		return got, true
	}
	return span{}, false
}

// release takes back what alloc gave out.
func (s *sram) release(p span) {
	i, _ := slices.BinarySearchFunc(s.holes, p.at, func(h span, at uint64) int {
		if h.at < at {
			return -1
		}
		return 1
	})
	s.holes = slices.Insert(s.holes, i, p)
	if i+1 < len(s.holes) && p.at+p.size == s.holes[i+1].at {
		s.holes[i].size += s.holes[i+1].size
		s.holes = slices.Delete(s.holes, i+1, i+2)
	}
	if i > 0 && s.holes[i-1].at+s.holes[i-1].size == s.holes[i].at {
		s.holes[i-1].size += s.holes[i].size
		s.holes = slices.Delete(s.holes, i, i+1)
	}
}

// memory is a piece of device memory. The host may change it at any time.
func (s *sram) memory(p span) []byte { return s.bytes[p.at:][:p.size:p.size] }

// registerDevice registers a piece of device memory that was given out, as register does
// host memory: its application addresses are its offsets in BAR4. t is live.
func (m *regions) registerDevice(p span, tag uint32, access datasheet.Access) (handle uint32, ok bool) {
	r := m.enter()
	if r == nil {
		return 0, false
	}
	r.ptag, r.address, r.length, r.iova, r.access, r.device = tag, p.at, p.size, p.at, access, true
	m.ptag(tag).users++
	return r.handle, true
}
