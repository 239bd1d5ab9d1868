// Package inetsum is the ones' complement sum of the internet's protocols (RFC 1071).
package inetsum

import (
	"encoding/binary"
	"math"
)

// Add adds the 16-bit words of b to a sum that is not folded. A last odd byte is the upper half of a word.
func Add(sum uint64, b []byte) uint64 {
	for ; len(b) >= 8; b = b[8:] { // halves of 32 bits: the sum of a frame does not overflow
		v := binary.BigEndian.Uint64(b)
		sum += v>>32 + v&math.MaxUint32
	}
	for ; len(b) >= 2; b = b[2:] {
		sum += uint64(binary.BigEndian.Uint16(b))
	}
	if len(b) > 0 {
		sum += uint64(b[0]) << 8
	}
	return sum
}

// Fold brings a sum to 16 bits.
func Fold(sum uint64) uint16 {
	for sum > math.MaxUint16 {
		sum = sum&math.MaxUint16 + sum>>16
	}
	return uint16(sum)
}

// Of is the sum of b. A header with its right checksum in it sums to all ones.
func Of(b []byte) uint16 { return Fold(Add(0, b)) }
