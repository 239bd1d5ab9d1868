package protocol

// DMAFlags say what a server may do with mapped memory (linux/vfio.h).
type DMAFlags uint32

const (
	DMARead  DMAFlags = 1
	DMAWrite DMAFlags = 2
)

// DMAMap is the request of DMA_MAP, whose reply has no payload. Memory that the
// server can map comes with a file descriptor.
type DMAMap struct {
	Flags DMAFlags
	// Offset in the file.
	Offset uint64
	// Address on the device's bus, and Size of the range in bytes.
	Address, Size uint64
}

const dmaMapSize = 32

// Append appends the payload to b.
func (m DMAMap) Append(b []byte) []byte {
	b = order.AppendUint32(b, dmaMapSize)
	b = order.AppendUint32(b, uint32(m.Flags))
	b = order.AppendUint64(b, m.Offset)
	b = order.AppendUint64(b, m.Address)
	return order.AppendUint64(b, m.Size)
}

// DecodeDMAMap reads a request. Size is not zero, and neither the range of
// addresses nor that of offsets wraps.
func DecodeDMAMap(p []byte) (DMAMap, error) {
	const c = CommandDMAMap
	var m DMAMap
	if err := checkArgsz(c, p, dmaMapSize); err != nil {
		return m, err
	}
	m = DMAMap{DMAFlags(order.Uint32(p[4:])), order.Uint64(p[8:]), order.Uint64(p[16:]), order.Uint64(p[24:])}
	if m.Flags&(DMARead|DMAWrite) == 0 || m.Flags&^(DMARead|DMAWrite) != 0 {
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
	UnmapDirtyBitmap uint32 = 1
	UnmapAll         uint32 = 2
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
	b = order.AppendUint32(b, m.Argsz)
	b = order.AppendUint32(b, flags)
	b = order.AppendUint64(b, m.Address)
	return order.AppendUint64(b, m.Size)
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
	b = order.AppendUint64(b, m.Address)
	b = order.AppendUint64(b, m.Count)
	return append(b, m.Data...)
}

// DecodeDMAAccess reads the message of command c, DMA_READ or DMA_WRITE. Data
// follows: Count bytes if there is to be data, none otherwise.
func DecodeDMAAccess(c Command, reply bool, p []byte) (DMAAccess, error) {
	if len(p) < dmaAccessSize {
		return DMAAccess{}, Invalid(c, "size", HeaderSize+len(p), "want at least %#x", HeaderSize+dmaAccessSize)
	}
	m := DMAAccess{order.Uint64(p), order.Uint64(p[8:]), p[dmaAccessSize:]}
	want := uint64(0)
	if (c == CommandDMARead) == reply {
		want = m.Count
	}
	if uint64(len(m.Data)) != want {
		return m, Invalid(c, "count", m.Count, "the message has %#x bytes of data", len(m.Data))
	}
	return m, checkRange(c, "address", m.Address, m.Count)
}
