package ring

import "unsafe"

// view points a ring's fields into memory at offset, which the caller has
// checked: aligned to Align, and HeaderSize and 1<<log2 descriptors long.
func (s *shared) view(memory []byte, offset uint64, log2 uint8) {
	header := memory[offset:]
	s.word = (*uint32)(unsafe.Pointer(&header[4]))
	s.tail = (*uint32)(unsafe.Pointer(&header[64]))
	s.descriptors = unsafe.Slice((*descriptor)(unsafe.Pointer(&header[HeaderSize])), 1<<log2)
	s.mask = 1<<log2 - 1
}

// aligned reports whether memory starts at a multiple of Align.
func aligned(memory []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%Align == 0
}
