package shm

import "unsafe"

// wordsAt lays words over b, which is mapped memory: a multiple of 8 bytes that
// starts at one.
func wordsAt(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/wordSize)
}

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
	return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % lineSize)
}

// payloadIn is the room of a slot behind its two words of header.
func payloadIn(slot *[1 << slotShift]uint64) *[slotPayload]byte {
	return (*[slotPayload]byte)(unsafe.Pointer(&slot[slotHeader/wordSize]))
}
