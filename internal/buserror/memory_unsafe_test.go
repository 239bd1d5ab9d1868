package buserror_test

import "unsafe"

func address(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

func word(b []byte, offset int) *uint32 { return (*uint32)(unsafe.Pointer(&b[offset])) }
