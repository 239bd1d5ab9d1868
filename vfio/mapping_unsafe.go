package vfio

import "unsafe"

// pointer32 returns the address of the four bytes at offset of b, which are
// there; nil if the address is not a multiple of four.
func pointer32(b []byte, offset uint64) *uint32 {
	p := unsafe.Pointer(&b[offset])
	if uintptr(p)%4 != 0 {
		return nil
	}
	return (*uint32)(p)
}
