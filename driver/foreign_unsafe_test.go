package driver_test

import "unsafe"

// within returns where in outer inner begins; -1 if it begins elsewhere.
func within(outer, inner []byte) int {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(inner))) - uintptr(unsafe.Pointer(unsafe.SliceData(outer)))
	if at >= uintptr(len(outer)) {
		return -1
	}
	return int(at)
}
