package protocol

import (
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/vfio"
)

// DMAMap is the request of DMA_MAP, whose reply has no payload. Memory that the
// server can map comes with a file descriptor.
type DMAMap struct {
	Flags vfio.DMAFlags
	// Offset in the file.
	Offset uint64
	// Address on the device's bus, and Size of the range in bytes.
	Address, Size uint64
}

// dmaMap is a DMAMap in a message.
type dmaMap struct {
	Argsz uint32
	DMAMap
}

// Append appends the payload to b.
func (m DMAMap) Append(b []byte) []byte { return encode(b, dmaMap{uint32(binary.Size(dmaMap{})), m}) }

// DecodeDMAMap reads a request. Size is not zero, and neither the range of
// addresses nor that of offsets wraps.
func DecodeDMAMap(p []byte) (DMAMap, error) {
	const c = CommandDMAMap
	w, err := decode[dmaMap](c, p)
	m := w.DMAMap
	if err != nil {
		return m, err
	}
	if m.Flags&(vfio.DMARead|vfio.DMAWrite) == 0 || m.Flags&^(vfio.DMARead|vfio.DMAWrite) != 0 {
		return m, Invalid(c, "flags", m.Flags, "want read (1), write (2) or both")
	}
	if m.Size == 0 {
		return m, Invalid(c, "size of the range", m.Size, "want at least one page")
	}
	if err := checkRange(c, "address", m.Address, m.Size); err != nil {
		return m, err
	}
	return m, checkRange(c, "offset", m.Offset, m.Size)
}

// Flags of DMA_UNMAP (linux/vfio.h).
const (
	UnmapAll uint32 = 2
)

// DMAUnmap is both the request and the reply of DMA_UNMAP. In the reply Size is
// the number of bytes that were mapped.
type DMAUnmap struct {
	Argsz uint32
	// All mappings, and not those in the range, which is empty.
	All           bool
	Address, Size uint64
}

const dmaUnmapSize = 24

// Append appends the payload to b.
func (m DMAUnmap) Append(b []byte) []byte {
	var flags uint32
	if m.All {
		flags = UnmapAll
	}
	return encode(encode(b, []uint32{m.Argsz, flags}), []uint64{m.Address, m.Size})
}

// NewDMAUnmap makes a request.
func NewDMAUnmap(address, size uint64) DMAUnmap {
	return DMAUnmap{Argsz: dmaUnmapSize, Address: address, Size: size}
}

// DecodeDMAUnmap reads a request. The range does not wrap; it is empty exactly
// if All is set. Dirty bitmaps are not supported.
func DecodeDMAUnmap(p []byte) (DMAUnmap, error) {
	const c = CommandDMAUnmap
	if err := checkArgsz(c, p, dmaUnmapSize); err != nil {
		return DMAUnmap{}, err
	}
	flags := order.Uint32(p[4:])
	m := DMAUnmap{order.Uint32(p), flags == UnmapAll, order.Uint64(p[8:]), order.Uint64(p[16:])}
	switch {
	case flags&^UnmapAll != 0:
		return m, Invalid(c, "flags", flags, "want 0, or 2 for all mappings; dirty bitmaps are not supported")
	case m.All && (m.Address != 0 || m.Size != 0):
		return m, Invalid(c, "size of the range", m.Size, "with the flag for all mappings the range is empty, at address 0")
	case !m.All && m.Size == 0:
		return m, Invalid(c, "size of the range", m.Size, "want at least one page")
	}
	return m, checkRange(c, "address", m.Address, m.Size)
}

// DMAAccess is the request and the reply of DMA_READ and DMA_WRITE, with which
// a server reaches memory that it cannot map. The request of DMA_WRITE and the
// reply of DMA_READ carry data.
type DMAAccess struct {
	Address, Count uint64
	Data           []byte
}

const dmaAccessSize = 16

// Append appends the payload to b.
func (m DMAAccess) Append(b []byte) []byte {
	return append(encode(b, []uint64{m.Address, m.Count}), m.Data...)
}

// DecodeDMAAccess reads the message of command c, DMA_READ or DMA_WRITE. Data
// follows: Count bytes if there is to be data, none otherwise.
func DecodeDMAAccess(c Command, reply bool, p []byte) (DMAAccess, error) {
	if len(p) < dmaAccessSize {
		return DMAAccess{}, Invalid(c, "size", HeaderSize+len(p), "want at least %#x", HeaderSize+dmaAccessSize)
	}
	m := DMAAccess{order.Uint64(p), order.Uint64(p[8:]), p[dmaAccessSize:]}
	return m, checkAccess(c, "address", m.Address, m.Count, (c == CommandDMARead) == reply, m.Data)
}
