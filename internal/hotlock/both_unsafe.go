package hotlock

import "unsafe"

// both are word, in the low half, and waiters. Both architectures are little-endian.
func (m *Mutex) both() *uint64 { return (*uint64)(unsafe.Pointer(&m.word)) }
