package shm

import "unsafe"

// within returns where p lies in mem, which is not on the Go heap.
func within(p, mem []byte) (offset uint64, ok bool) {
	at, first := uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	if at < first || at-first > uintptr(len(mem)) || uintptr(len(p)) > uintptr(len(mem))-(at-first) {
		return 0, false
	}
	return uint64(at - first), true
}
