package core

import (
	"cmp"
	"slices"
)

// sramGranule is the unit of device memory that is given out, in bytes: a cache line.
const sramGranule = 64

// sram is the part of device memory (BAR4) that endpoints and regions get pieces of. What
// stands before it, control programs and their mailbox, is the NIC processor's.
type sram struct {
	Bytes []byte // all of BAR4
	From  uint64 // offset of the first byte that is given out
	holes []Span // what is free, in order, none next to another
}

// Span is a piece of device memory, by offset in BAR4.
type Span struct{ At, size uint64 }

// Clear takes back everything that was given out.
func (s *sram) Clear() {
	s.holes = nil
	if size := uint64(len(s.Bytes)); size > s.From {
		s.holes = []Span{{s.From, size - s.From}}
	}
}

// Free returns the number of bytes that are not given out; they need not be in one piece.
func (s *sram) Free() (n uint64) {
	for _, h := range s.holes {
		n += h.size
	}
	return n
}

// Alloc gives out size bytes at a multiple of align, a power of two of at least
// sramGranule, zeroed: the first that fit. It returns false if there are none.
func (s *sram) Alloc(size, align uint64) (Span, bool) {
	if size == 0 || size > uint64(len(s.Bytes)) {
		return Span{}, false
	}
	size = (size + sramGranule - 1) &^ (sramGranule - 1)
	for i, h := range s.holes {
		at := (h.At + align - 1) &^ (align - 1)
		if at-h.At > h.size || size > h.size-(at-h.At) {
			continue
		}
		var left []Span
		if at > h.At {
			left = append(left, Span{h.At, at - h.At})
		}
		if end := at + size; end < h.At+h.size {
			left = append(left, Span{end, h.At + h.size - end})
		}
		s.holes = slices.Replace(s.holes, i, i+1, left...)
		got := Span{at, size}
		clear(s.Memory(got))
		return got, true
	}
	return Span{}, false
}

// Release takes back what alloc gave out.
func (s *sram) Release(p Span) {
	i, _ := slices.BinarySearchFunc(s.holes, p.At, func(h Span, at uint64) int { return cmp.Compare(h.At, at) })
	s.holes = slices.Insert(s.holes, i, p)
	if i+1 < len(s.holes) && p.At+p.size == s.holes[i+1].At {
		s.holes[i].size += s.holes[i+1].size
		s.holes = slices.Delete(s.holes, i+1, i+2)
	}
	if i > 0 && s.holes[i-1].At+s.holes[i-1].size == s.holes[i].At {
		s.holes[i-1].size += s.holes[i].size
		s.holes = slices.Delete(s.holes, i, i+1)
	}
}

// Memory is a piece of device memory. The host may change it at any time.
func (s *sram) Memory(p Span) []byte { return s.Bytes[p.At:][:p.size:p.size] }
