package pci

import "unsafe"

// register16 is the register that b, which is not empty and aligned to 2, begins with.
func register16(b []byte) *uint16 { return (*uint16)(unsafe.Pointer(unsafe.SliceData(b))) }
