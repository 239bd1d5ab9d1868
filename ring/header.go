package ring

import (
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/via"
)

// MaxRequest is the size in bytes of the largest request or reply, beside its payload: a
// message without the header of calls.
const MaxRequest = MessageSize - headerSize

// The header of calls, at the start of a message; little-endian:
//
//	0   1  version, 1
//	1   1  kind: 1 request, 2 reply
//	2   2  size: bytes in use behind the header, 0 to MaxRequest
//	4   4  tag: the caller's name for the call; the reply repeats it, also as its message's tag
//	8   4  payload: of a request, the room in bytes for the reply's; of a reply, its length
//	12  4  zero
const (
	headerSize    = 16
	headerVersion = 1
)

type kind uint8

const (
	request kind = 1
	reply   kind = 2
)

type header struct {
	kind    kind
	size    int
	tag     uint32
	payload uint32
}

// put writes h to the first bytes of a message.
func (h header) put(b []byte) {
	b[0], b[1] = headerVersion, byte(h.kind)
	binary.LittleEndian.PutUint16(b[2:], uint16(h.size))
	binary.LittleEndian.PutUint32(b[4:], h.tag)
	binary.LittleEndian.PutUint32(b[8:], h.payload)
	binary.LittleEndian.PutUint32(b[12:], 0)
}

// parseHeader reads the header of a message that must be of kind want. The message must not
// change meanwhile. The error matches via.ErrProtocol.
func parseHeader(b []byte, want kind) (header, error) {
	if len(b) < headerSize {
		return header{}, fmt.Errorf("%w: a message of %d bytes", via.ErrProtocol, len(b))
	}
	h := header{kind: kind(b[1]), size: int(binary.LittleEndian.Uint16(b[2:])),
		tag: binary.LittleEndian.Uint32(b[4:]), payload: binary.LittleEndian.Uint32(b[8:])}
	switch {
	case b[0] != headerVersion:
		return header{}, fmt.Errorf("%w: calls of version %d, not %d", via.ErrProtocol, b[0], headerVersion)
	case h.kind != want:
		return header{}, fmt.Errorf("%w: a message of kind %d, not %d", via.ErrProtocol, h.kind, want)
	case h.size > MaxRequest || h.size > len(b)-headerSize:
		return header{}, fmt.Errorf("%w: size %d, there are %d bytes", via.ErrProtocol, h.size, len(b)-headerSize)
	case binary.LittleEndian.Uint32(b[12:]) != 0:
		return header{}, fmt.Errorf("%w: reserved bytes of the header are %#x", via.ErrProtocol, binary.LittleEndian.Uint32(b[12:]))
	}
	return h, nil
}
