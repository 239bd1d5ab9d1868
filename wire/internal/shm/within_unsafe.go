package shm

import (
	"unsafe"

	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// within returns where p lies in mem, which is not on the Go heap.
func within(p, mem []byte) (offset uint64, ok bool) {
	at, first := uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	if at < first || at-first > uintptr(len(mem)) || uintptr(len(p)) > uintptr(len(mem))-(at-first) {
		return 0, false
	}
	return uint64(at - first), true
}

// toLine returns how far the next cache line starts behind the start of b.
func toLine(b []byte) int {
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % line.LineSize)
}
