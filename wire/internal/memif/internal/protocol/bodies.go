package protocol

import (
	"bytes"
	"encoding/binary"
	"reflect"
	"slices"
	"strconv"
)

// Body is the content of a message: Ack, Hello, Init, AddRegion, AddRing,
// Connect, Connected or Disconnect. Their fields follow each other in a message in their order; size is
// that of a string in bytes.
type Body any

// Ack says that the server has taken the client's message.
type Ack struct{}

// Hello is the server's first message.
type Hello struct {
	// Name of the server's program.
	Name string `size:"32"`
	// MinVersion and MaxVersion bound the versions that the server speaks.
	MinVersion, MaxVersion uint16
	// MaxRegion, MaxS2C and MaxC2S are the highest indexes of regions and of
	// rings of each direction.
	MaxRegion, MaxS2C, MaxC2S uint16
	// MaxLog2 is the binary logarithm of the size of the largest ring.
	MaxLog2 uint8
}

// Init is the client's first message.
type Init struct {
	Version uint16
	// ID is the number of the interface: a server may have several on a socket.
	ID     uint32
	Mode   uint8
	Secret string `size:"24"`
	// Name of the client's program.
	Name string `size:"32"`
}

// AddRegion brings a file with memory for rings or buffers.
type AddRegion struct {
	// Index counts from 0.
	Index uint16
	// Size in bytes.
	Size uint64
}

// AddRing brings the eventfd of a ring and says where the ring is.
type AddRing struct {
	// Flags is RingC2S or 0.
	Flags uint16
	// Index counts from 0 in each direction.
	Index uint16
	// Region and Offset in bytes say where the ring is.
	Region uint16
	Offset uint32
	// Log2 is the binary logarithm of the number of descriptors.
	Log2 uint8
	// PrivateHeader is the size of metadata in front of each frame.
	PrivateHeader uint16
}

// Connect says that the client has added everything.
type Connect struct {
	// Interface is the name of the client's interface.
	Interface string `size:"32"`
}

// Connected says that the server has everything, and that frames may flow.
type Connected struct {
	// Interface is the name of the server's interface.
	Interface string `size:"32"`
}

// Disconnect ends the connection.
type Disconnect struct {
	Code   uint32
	Reason string `size:"96"`
}

// bodies are the types of bodies, by the type of message.
var bodies = []reflect.Type{
	TypeAck: reflect.TypeFor[Ack](), TypeHello: reflect.TypeFor[Hello](), TypeInit: reflect.TypeFor[Init](),
	TypeAddRegion: reflect.TypeFor[AddRegion](), TypeAddRing: reflect.TypeFor[AddRing](), TypeConnect: reflect.TypeFor[Connect](),
	TypeConnected: reflect.TypeFor[Connected](), TypeDisconnect: reflect.TypeFor[Disconnect](),
}

// Encode makes a message of a body. Strings that are too long are cut off.
func Encode(body Body) *Message {
	var m Message
	binary.LittleEndian.PutUint16(m[:], uint16(slices.Index(bodies, reflect.TypeOf(body))))
	m.each(reflect.ValueOf(body), func(f reflect.Value, b []byte) {
		if f.Kind() == reflect.String {
			copy(b[:len(b)-1], f.String())
		} else {
			_, _ = binary.Encode(b, binary.LittleEndian, f.Interface()) // it is as long as it has to be
		}
	})
	return &m
}

// Decode returns what is in a message. It fails with an *Error if there is no
// such type. The fields are as the peer wrote them; strings end at the first
// zero.
func Decode(m *Message) (Body, error) {
	t := m.Type()
	if t == TypeNone || int(t) >= len(bodies) {
		return nil, &Error{Field: "type", Value: uint64(t), Why: "there is no such message"}
	}
	body := reflect.New(bodies[t]).Elem()
	m.each(body, func(f reflect.Value, b []byte) {
		if f.Kind() == reflect.String {
			s, _, _ := bytes.Cut(b, []byte{0})
			f.SetString(string(s))
		} else {
			_, _ = binary.Decode(b, binary.LittleEndian, f.Addr().Interface())
		}
	})
	return body.Interface(), nil
}

// each calls do with each field of a body and its bytes: one follows the other.
func (m *Message) each(body reflect.Value, do func(f reflect.Value, b []byte)) {
	left := m[2:]
	for i := range body.NumField() {
		f := body.Field(i)
		size := int(f.Type().Size())
		if f.Kind() == reflect.String {
			size, _ = strconv.Atoi(body.Type().Field(i).Tag.Get("size"))
		}
		do(f, left[:size])
		left = left[size:]
	}
}
