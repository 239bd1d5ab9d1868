package mqnic

import (
	"sync/atomic"
	"unsafe"
)

// descriptorsAt, completionsAt and eventsAt lay n entries over b, which is DMA memory of as many at
// least, at the start of a page.
func descriptorsAt(b []byte, n int) []descriptor {
	return unsafe.Slice((*descriptor)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func completionsAt(b []byte, n int) []completion {
	return unsafe.Slice((*completion)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func eventsAt(b []byte, n int) []event {
	return unsafe.Slice((*event)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// load loads the word of an entry that the device writes last.
func load(phase *uint32) uint32 { return atomic.LoadUint32(phase) }
