package framering

import "unsafe"

// headOf returns the head before the ring, in memory of at least headerSize bytes.
func headOf(memory []byte) *head { return (*head)(unsafe.Pointer(unsafe.SliceData(memory))) }
