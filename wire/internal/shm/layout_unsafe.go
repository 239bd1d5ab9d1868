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

// slot is that of a frame: its word, and the header and payload of a short one.
type slot struct {
	word, header uint64
	payload      [slotPayload]byte
}

// immediate is where the immediate data of a short frame are.
func (s *slot) immediate() *uint32 { return (*uint32)(unsafe.Pointer(&s.payload)) }

// slot is the slot of frame i.
func (h *half) slot(i uint32) *slot {
	return (*slot)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(h.slots)), uintptr(i&h.last)*slotSize))
}
