package sealed

import (
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// The layout of datagrams, SPEC.md 8.11. What stands at 12 to 15 is where a frame
// has its EtherType, version and type, so that a wire without a key takes a sealed
// datagram for a frame of another version and drops it.
const (
	headerSize = 16
	tagSize    = 16
	// Overhead is the length of a datagram beyond its frame, in bytes.
	Overhead = headerSize + tagSize

	version = 0x81 // no version of a frame has the upper bit

	typeHello = 1
	typeReply = 2
	typeFrame = 3

	nonceSize    = 32
	instanceSize = 8
	macSize      = 32
	helloSize    = headerSize + instanceSize + nonceSize + macSize
	replySize    = headerSize + instanceSize + 8 + nonceSize + macSize
)

// IsSealed reports whether a datagram is one of this package, as far as its first
// bytes say.
func IsSealed(datagram []byte) bool {
	return len(datagram) >= headerSize && [2]byte(datagram[12:]) == datasheet.EtherType && datagram[14] == version
}

// IsHello reports whether a datagram is a hello as far as that can be told without the
// key: who sends one has a key. The beginning of another datagram, or a damaged one, is none.
func IsHello(datagram []byte) bool {
	return IsSealed(datagram) && datagram[15] == typeHello && len(datagram) == helloSize &&
		numberOf(datagram) == 0 && sessionOf(datagram) != 0
}

// isPlain reports whether a datagram is a frame without a key: a whole frame of ours with a
// good checksum, which every such wire has in its frames.
func isPlain(datagram []byte) bool {
	h := datasheet.HeaderAt(datagram)
	if h == nil || h.EtherType != datasheet.EtherType || h.Version != datasheet.WireVersion || h.Flags&datasheet.FrameChecksum == 0 {
		return false
	}
	n := datasheet.HeaderSize + int(h.Length)
	return n <= len(datagram) && datasheet.FrameChecksumOf(datagram[:n]) == h.Checksum
}

// FrameSize returns the length of the frame in a datagram; ok is false if there is
// none.
func FrameSize(datagram []byte) (n int, ok bool) {
	return len(datagram) - Overhead, IsSealed(datagram) && datagram[15] == typeFrame && len(datagram) >= Overhead
}

// putHeader writes the header of a datagram. It is authenticated with the rest.
func putHeader(b []byte, number uint64, session uint32, kind byte) {
	binary.LittleEndian.PutUint64(b, number)
	binary.LittleEndian.PutUint32(b[8:], session)
	b[12], b[13] = datasheet.EtherType[0], datasheet.EtherType[1]
	b[14], b[15] = version, kind
}

func numberOf(b []byte) uint64  { return binary.LittleEndian.Uint64(b) }
func sessionOf(b []byte) uint32 { return binary.LittleEndian.Uint32(b[8:]) }
