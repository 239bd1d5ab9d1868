package engine_test

import "unsafe"

// alignedBytes returns n zeroed bytes that start on a page boundary, as the
// memory of a real bus would. Less than a page, as a frame, starts on a cache line.
func alignedBytes(n int) []byte {
	align := 4096
	if n < align {
		align = 64
	}
	b := make([]byte, n+align)
	off := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (align - 1)
	return b[off : off+n : off+n]
}
