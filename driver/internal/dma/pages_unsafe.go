package dma

import (
	"os"
	"unsafe"
)

// AddressOf returns the application address of b, as descriptors name it.
func AddressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// Bounds returns the addresses of the first byte of b, which is not empty, and of the one
// behind the last.
func Bounds(b []byte) (first, end uint64) { return AddressOf(b), AddressOf(b) + uint64(len(b)) }

// WholePages returns the pages that b, which is not empty, lies in, and the address of
// the first. Memory of the Go heap has pages too, but is not to be touched by them.
func WholePages(b []byte) (pages []byte, first uint64) {
	page := uintptr(os.Getpagesize())
	before := uintptr(unsafe.Pointer(unsafe.SliceData(b))) % page
	size := (before + uintptr(len(b)) + page - 1) / page * page
	p := unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), -int(before))
	return unsafe.Slice((*byte)(p), size), uint64(uintptr(p))
}
