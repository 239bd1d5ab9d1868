package datasheet_test

import "unsafe"

// alignedBytes returns n zeroed bytes that start skew bytes behind a multiple
// of 64.
func alignedBytes(n, skew int) []byte {
	const align = 64
	b := make([]byte, n+2*align)
	at := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % align)
	return b[at+skew : at+skew+n : at+skew+n]
}

// addressOf returns where b starts.
func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// addressOfValue returns where *p stands.
func addressOfValue[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }
