package wire

import "unsafe"

// alignedBytes returns size bytes that start at a multiple of frameAlign.
func alignedBytes(size int) []byte {
	b := make([]byte, size+frameAlign)
	at := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % frameAlign)
	return b[at : at+size : at+size]
}
