package vfio

import "unsafe"

// Address returns the virtual address of the first byte; 0 after Close.
func (m *Memory) Address() uint64 {
	if m.closed.Load() {
		return 0
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.b))))
}
