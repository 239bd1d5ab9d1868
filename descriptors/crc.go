package descriptors

import "hash/crc32"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// FrameChecksumOf computes CRC-32C (RFC 3720, B.4) over a whole frame, header
// and payload, as if its Checksum field were zero. The frame must hold at least
// a header.
func FrameChecksumOf(frame []byte) uint32 {
	const at = HeaderSize - 4 // Checksum is the header's last field
	var zero [4]byte
	sum := crc32.Update(0, castagnoli, frame[:at])
	sum = crc32.Update(sum, castagnoli, zero[:])
	return crc32.Update(sum, castagnoli, frame[HeaderSize:])
}
