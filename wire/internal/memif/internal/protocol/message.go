package protocol

import (
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

// Type returns what kind of message it is; it may be one that does not exist.
func (m *Message) Type() Type { return Type(binary.LittleEndian.Uint16(m[:])) }

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
