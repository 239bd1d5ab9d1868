package sealed

import (
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// The layout of datagrams, SPEC.md 8.11. At 12 to 15, a frame has its EtherType, version and
// type, so that a wire without a key takes a sealed datagram for a frame of another version and
// drops it.
const (
	headerSize = 16
	tagSize    = 16
	// Overhead is the length of a datagram beyond its frame, in bytes.
	Overhead = headerSize + tagSize

	version = 0x82 // no version of a frame has the upper bit

	typeHello = 1
	typeReply = 2
	typeFrame = 3

	publicSize   = 32 // of a key of X25519
	instanceSize = 8
	helloSize    = headerSize + publicSize + instanceSize + tagSize
	replySize    = headerSize + publicSize + 4 + tagSize
)

// IsSealed reports whether a datagram is one of this package, as far as its first
// bytes say.
func IsSealed(datagram []byte) bool {
	return len(datagram) >= headerSize && [2]byte(datagram[12:]) == datasheet.EtherType && datagram[14] == version
}

// IsHello reports whether a datagram is a hello as far as that can be told without the
// key: its sender has a key.
func IsHello(datagram []byte) bool {
	return IsSealed(datagram) && datagram[15] == typeHello && len(datagram) == helloSize
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
