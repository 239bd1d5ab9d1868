package engine_test

import "unsafe"

// offsetOf returns how far behind the start of mem b starts; negative or beyond
// mem if it does not lie in it.
func offsetOf(b, mem []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}
