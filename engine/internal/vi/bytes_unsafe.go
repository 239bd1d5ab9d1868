package vi

import "unsafe"

// bytesAt is the memory of n bytes at p, which is known to have them.
func bytesAt(p *byte, n uint32) []byte { return unsafe.Slice(p, n) }
