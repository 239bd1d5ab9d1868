package protocol

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

const (
	// Version is the only one there is: major 2 in the high byte, minor 0.
	Version uint16 = 2 << 8
	// MessageSize is the size of every message in bytes.
	MessageSize = 128
	// NameSize, SecretSize and ReasonSize are the sizes of strings in bytes,
	// with the zero that ends them.
	NameSize   = 32
	SecretSize = 24
	ReasonSize = 96
)

// Type says what a message is.
type Type uint16

// The types of messages (memif_msg_type_t).
const (
	TypeNone Type = iota
	TypeAck
	TypeHello
	TypeInit
	TypeAddRegion
	TypeAddRing
	TypeConnect
	TypeConnected
	TypeDisconnect
)

var typeNames = [...]string{"NONE", "ACK", "HELLO", "INIT", "ADD_REGION", "ADD_RING", "CONNECT", "CONNECTED", "DISCONNECT"}

func (t Type) String() string {
	if int(t) < len(typeNames) {
		return typeNames[t]
	}
	return fmt.Sprintf("message type %d", uint16(t))
}

// Rights is the number of file descriptors that come with a message: one with
// ADD_REGION (memory) and ADD_RING (an eventfd), none with the others.
func (t Type) Rights() int {
	if t == TypeAddRegion || t == TypeAddRing {
		return 1
	}
	return 0
}

// ModeEthernet is the only interface mode that DPDK and we know: each buffer is
// an Ethernet frame. VPP also has IP (1) and punt/inject (2).
const ModeEthernet uint8 = 0

// RingC2S in AddRing.Flags: the ring carries frames from client to server.
const RingC2S uint16 = 1

// Message is a message as it is on the socket.
type Message [MessageSize]byte

// Body is the content of a message: Ack, Hello, Init, AddRegion, AddRing,
// Connect, Connected or Disconnect.
type Body interface {
	kind() Type
	put(b []byte)
}

// Encode makes a message. Strings that are too long are cut off.
func Encode(body Body) *Message {
	var m Message
	binary.LittleEndian.PutUint16(m[:], uint16(body.kind()))
	body.put(m[2:])
	return &m
}

// Type returns what kind of message it is; it may be one that does not exist.
func (m *Message) Type() Type { return Type(binary.LittleEndian.Uint16(m[:])) }

// Decode returns what is in a message. It fails with an *Error if there is no
// such type. The fields are as the peer wrote them; strings end at the first
// zero.
func Decode(m *Message) (Body, error) {
	b := m[2:]
	u16 := func(at int) uint16 { return binary.LittleEndian.Uint16(b[at:]) }
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(b[at:]) }
	text := func(at, size int) string {
		s, _, _ := bytes.Cut(b[at:at+size], []byte{0})
		return string(s)
	}
	switch t := m.Type(); t {
	case TypeAck:
		return Ack{}, nil
	case TypeHello:
		return Hello{Name: text(0, NameSize), MinVersion: u16(32), MaxVersion: u16(34), MaxRegion: u16(36),
			MaxS2C: u16(38), MaxC2S: u16(40), MaxLog2: b[42]}, nil
	case TypeInit:
		return Init{Version: u16(0), ID: u32(2), Mode: b[6], Secret: text(7, SecretSize), Name: text(31, NameSize)}, nil
	case TypeAddRegion:
		return AddRegion{Index: u16(0), Size: binary.LittleEndian.Uint64(b[2:])}, nil
	case TypeAddRing:
		return AddRing{Flags: u16(0), Index: u16(2), Region: u16(4), Offset: u32(6), Log2: b[10], PrivateHeader: u16(11)}, nil
	case TypeConnect:
		return Connect{Interface: text(0, NameSize)}, nil
	case TypeConnected:
		return Connected{Interface: text(0, NameSize)}, nil
	case TypeDisconnect:
		return Disconnect{Code: u32(0), Reason: text(4, ReasonSize)}, nil
	default:
		return nil, &Error{Field: "type", Value: uint64(t), Why: "there is no such message"}
	}
}

// Error says what is wrong with a message.
type Error struct {
	// Message is its type; TypeNone if the type is wrong, or if it is not
	// known.
	Message Type
	// Field that is wrong, and its value.
	Field string
	Value uint64
	Why   string
}

func (e *Error) Error() string {
	of := ""
	if e.Message != TypeNone {
		of = " of " + e.Message.String()
	}
	return fmt.Sprintf("memif message: %s%s is %#x: %s", e.Field, of, e.Value, e.Why)
}
