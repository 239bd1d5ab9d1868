package igb

import (
	"sync/atomic"
	"unsafe"
)

// receivedAt and sentAt lay n descriptors over b, which is DMA memory of as many at least,
// at the start of a page.
func receivedAt(b []byte, n int) []received {
	return unsafe.Slice((*received)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func sentAt(b []byte, n int) []sent {
	return unsafe.Slice((*sent)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

// headAt lays the word over b in which the device tells how far it has sent.
func headAt(b []byte) *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(b))) }

// status loads the word that the device writes last.
func (d *received) status() uint64 { return atomic.LoadUint64(&d.high) }
