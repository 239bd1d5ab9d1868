package protocol

import "encoding/binary"

// Ack says that the server has taken the client's message.
type Ack struct{}

// Hello is the server's first message.
type Hello struct {
	// Name of the server's program.
	Name string
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
	Secret string
	// Name of the client's program.
	Name string
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
	Interface string
}

// Connected says that the server has everything, and that frames may flow.
type Connected struct {
	// Interface is the name of the server's interface.
	Interface string
}

// Disconnect ends the connection.
type Disconnect struct {
	Code   uint32
	Reason string
}

func (Ack) kind() Type        { return TypeAck }
func (Hello) kind() Type      { return TypeHello }
func (Init) kind() Type       { return TypeInit }
func (AddRegion) kind() Type  { return TypeAddRegion }
func (AddRing) kind() Type    { return TypeAddRing }
func (Connect) kind() Type    { return TypeConnect }
func (Connected) kind() Type  { return TypeConnected }
func (Disconnect) kind() Type { return TypeDisconnect }

// putText writes a string that a zero ends.
func putText(b []byte, s string) { copy(b[:len(b)-1], s) }

func (Ack) put([]byte) {}

func (h Hello) put(b []byte) {
	putText(b[:NameSize], h.Name)
	binary.LittleEndian.PutUint16(b[32:], h.MinVersion)
	binary.LittleEndian.PutUint16(b[34:], h.MaxVersion)
	binary.LittleEndian.PutUint16(b[36:], h.MaxRegion)
	binary.LittleEndian.PutUint16(b[38:], h.MaxS2C)
	binary.LittleEndian.PutUint16(b[40:], h.MaxC2S)
	b[42] = h.MaxLog2
}

func (i Init) put(b []byte) {
	binary.LittleEndian.PutUint16(b, i.Version)
	binary.LittleEndian.PutUint32(b[2:], i.ID)
	b[6] = i.Mode
	putText(b[7:7+SecretSize], i.Secret)
	putText(b[31:31+NameSize], i.Name)
}

func (r AddRegion) put(b []byte) {
	binary.LittleEndian.PutUint16(b, r.Index)
	binary.LittleEndian.PutUint64(b[2:], r.Size)
}

func (r AddRing) put(b []byte) {
	binary.LittleEndian.PutUint16(b, r.Flags)
	binary.LittleEndian.PutUint16(b[2:], r.Index)
	binary.LittleEndian.PutUint16(b[4:], r.Region)
	binary.LittleEndian.PutUint32(b[6:], r.Offset)
	b[10] = r.Log2
	binary.LittleEndian.PutUint16(b[11:], r.PrivateHeader)
}

func (c Connect) put(b []byte)   { putText(b[:NameSize], c.Interface) }
func (c Connected) put(b []byte) { putText(b[:NameSize], c.Interface) }

func (d Disconnect) put(b []byte) {
	binary.LittleEndian.PutUint32(b, d.Code)
	putText(b[4:4+ReasonSize], d.Reason)
}
