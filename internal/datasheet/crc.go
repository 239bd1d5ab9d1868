package datasheet

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// noChecksum stands for the field in sums. On the stack of a caller it would be allocated for
// each frame, as package crc32 chooses how to sum at run time.
var noChecksum [4]byte

// FrameChecksumOf computes CRC-32C (RFC 3720, B.4) over a whole frame, header
// and payload, as if its Checksum field were zero. The frame must hold at least
// a header.
func FrameChecksumOf(frame []byte) uint32 {
	const at = HeaderSize - 4 // Checksum is the header's last field
	sum := crc32.Update(0, castagnoli, frame[:at])
	sum = crc32.Update(sum, castagnoli, noChecksum[:])
	return crc32.Update(sum, castagnoli, frame[HeaderSize:])
}
