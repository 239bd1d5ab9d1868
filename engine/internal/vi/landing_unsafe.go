package vi

import "unsafe"

// bytes is the memory of the first n bytes of a message, of at most total.
func (l *landing) bytes(n uint32) []byte { return unsafe.Slice(l.memory, n) }
