package virtqueuetest

import "unsafe"

// pointer returns a pointer to a T at offset of an area, which is long enough.
func pointer[T any](area []byte, offset uint32) *T { return (*T)(unsafe.Pointer(&area[offset])) }
