package line

import "unsafe"

// WordsAt lays words over b, a multiple of 8 bytes that starts at one. It is memory that does not move.
func WordsAt(b []byte) []uint64 {
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/wordSize)
}

// Aligned returns n bytes that start at a line, so that header and payload of a frame start on lines of their own.
func Aligned(n int) []byte {
	b := make([]byte, n+LineSize)
	at := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) % LineSize)
	return b[at : at+n : at+n]
}

// slot is that of a frame: its word, and the header and payload of a short one.
type slot struct {
	word, header uint64
	payload      [slotPayload]byte
}

// immediate is where the immediate data of a short frame are.
func (s *slot) immediate() *uint32 { return (*uint32)(unsafe.Pointer(&s.payload)) }

// slot is the slot of frame i.
func (h *Half) slot(i uint32) *slot {
	return (*slot)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(h.slots)), uintptr(i&h.last)*slotSize))
}
