package engine_test

import "unsafe"

// alignedBytes returns n zeroed bytes that start on a page boundary, as the
// memory of a real bus would.
func alignedBytes(n int) []byte {
	const page = 4096
	b := make([]byte, n+page)
	off := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (page - 1)
	return b[off : off+n : off+n]
}
