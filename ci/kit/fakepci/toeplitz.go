package fakepci

import "encoding/binary"

// Toeplitz is the hash by which receive-side scaling picks a queue. The key is 4 bytes longer than the input, or more.
func Toeplitz(key, input []byte) (hash uint32) {
	window := uint64(binary.BigEndian.Uint32(key))<<32 | uint64(binary.BigEndian.Uint32(key[4:]))
	for i, b := range input {
		for bit := 7; bit >= 0; bit-- {
			if b>>bit&1 != 0 {
				hash ^= uint32(window >> 32)
			}
			window <<= 1
		}
		window |= uint64(key[8+i])
	}
	return hash
}
