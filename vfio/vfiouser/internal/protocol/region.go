package protocol

import (
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/vfio"
)

// regionCaps in the flags of DEVICE_GET_REGION_INFO (linux/vfio.h) says that there are capabilities.
const regionCaps vfio.RegionFlags = 8

// RegionInfo is both the request and the reply of DEVICE_GET_REGION_INFO. In
// the request only Argsz and Index count. A reply for a region that can be
// mapped comes with one file descriptor.
type RegionInfo struct {
	// Argsz in the reply is the room that all of it needs: if that is more than
	// the request's, the capabilities are missing.
	Argsz uint32
	// Flags without regionCaps.
	Flags vfio.RegionFlags
	Index uint32
	Size  uint64
	// Offset in the file at which the region starts.
	Offset uint64
	// Sparse lists the parts that can be mapped, if not all of it can.
	Sparse []vfio.Area
}

const (
	regionInfoSize = 32
	// Capabilities are a list: id u16, version u16, offset of the next from the
	// start of the payload u32, and what belongs to the id.
	capHeaderSize = 8
	capSparse     = 1
	// The sparse mmap capability: number of areas u32, reserved u32, areas.
	sparseSize = capHeaderSize + 8
	areaSize   = 16
)

// ReplySize is the size in bytes of the whole payload.
func (m RegionInfo) ReplySize() uint32 {
	if m.Sparse == nil {
		return regionInfoSize
	}
	return regionInfoSize + sparseSize + areaSize*uint32(len(m.Sparse))
}

// Append appends the payload to b. Capabilities that do not fit room bytes of
// payload are left out, as the specification wants it.
func (m RegionInfo) Append(b []byte, room uint32) []byte {
	caps := m.Sparse != nil && m.ReplySize() <= room
	flags, capOffset := m.Flags&^regionCaps, uint32(0)
	if caps {
		flags |= regionCaps
		capOffset = regionInfoSize
	}
	b = encode(encode(b, []uint32{m.Argsz, uint32(flags), m.Index, capOffset}), []uint64{m.Size, m.Offset})
	if !caps {
		return b
	}
	return encode(encode(encode(b, []uint16{capSparse, 1}), []uint32{0, uint32(len(m.Sparse)), 0}), m.Sparse)
}

// DecodeRegionInfo reads a request.
func DecodeRegionInfo(p []byte) (RegionInfo, error) {
	if err := checkArgsz(CommandRegionInfo, p, regionInfoSize); err != nil {
		return RegionInfo{}, err
	}
	return RegionInfo{Argsz: order.Uint32(p), Index: order.Uint32(p[8:])}, nil
}

// DecodeRegionInfoReply reads a reply. Capabilities that we do not know are
// skipped. Areas lie within the region, and the region's offset does not wrap.
func DecodeRegionInfoReply(p []byte) (RegionInfo, error) {
	const c = CommandRegionInfo
	if len(p) < regionInfoSize {
		return RegionInfo{}, Invalid(c, "size", HeaderSize+len(p), "want at least %#x", HeaderSize+regionInfoSize)
	}
	m := RegionInfo{Argsz: order.Uint32(p), Flags: vfio.RegionFlags(order.Uint32(p[4:])), Index: order.Uint32(p[8:]),
		Size: order.Uint64(p[16:]), Offset: order.Uint64(p[24:])}
	if m.Argsz < regionInfoSize {
		return m, Invalid(c, "argsz", m.Argsz, "want at least %#x", regionInfoSize)
	}
	if err := checkRange(c, "offset", m.Offset, m.Size); err != nil {
		return m, err
	}
	if m.Flags&regionCaps == 0 {
		return m, nil
	}
	m.Flags &^= regionCaps
	return m, m.decodeCaps(p)
}

// decodeCaps walks the list of capabilities, which only goes forward.
func (m *RegionInfo) decodeCaps(p []byte) error {
	const c = CommandRegionInfo
	end := uint64(regionInfoSize)
	for at := uint64(order.Uint32(p[12:])); at != 0; {
		if at < end || at+capHeaderSize > uint64(len(p)) {
			return Invalid(c, "cap_offset", at, "want %#x to %#x", end, len(p)-capHeaderSize)
		}
		if order.Uint16(p[at:]) == capSparse {
			if err := m.decodeSparse(p[at:]); err != nil {
				return err
			}
		}
		end = at + capHeaderSize
		at = uint64(order.Uint32(p[at+4:]))
	}
	return nil
}

func (m *RegionInfo) decodeSparse(p []byte) error {
	const c = CommandRegionInfo
	if m.Sparse != nil {
		return Invalid(c, "capability", uint32(capSparse), "it is there twice")
	}
	if len(p) < sparseSize {
		return Invalid(c, "size", len(p), "a sparse mmap capability has at least %#x bytes", sparseSize)
	}
	n := order.Uint32(p[capHeaderSize:])
	if p = p[sparseSize:]; uint64(n) > uint64(len(p)/areaSize) {
		return Invalid(c, "nr_areas", n, "the message has room for %d", len(p)/areaSize)
	}
	m.Sparse = make([]vfio.Area, n)
	_, _ = binary.Decode(p, order, m.Sparse) // there are so many
	for _, a := range m.Sparse {
		if a.Offset > m.Size || a.Size > m.Size-a.Offset {
			return Invalid(c, "area", a.Offset, "%#x bytes from there leave the region of %#x", a.Size, m.Size)
		}
	}
	return nil
}

// RegionAccess is the request and the reply of REGION_READ and REGION_WRITE.
// The request of REGION_WRITE and the reply of REGION_READ carry data.
type RegionAccess struct {
	Offset        uint64
	Region, Count uint32
	Data          []byte
}

// RegionAccessSize is the size in bytes of a RegionAccess without data.
const RegionAccessSize = 16

// Append appends the payload to b.
func (m RegionAccess) Append(b []byte) []byte {
	return append(encode(encode(b, m.Offset), []uint32{m.Region, m.Count}), m.Data...)
}

// DecodeRegionAccess reads the message of command c, REGION_READ or
// REGION_WRITE. Data follows: Count bytes if there is to be data, none
// otherwise.
func DecodeRegionAccess(c Command, reply bool, p []byte) (RegionAccess, error) {
	if len(p) < RegionAccessSize {
		return RegionAccess{}, Invalid(c, "size", HeaderSize+len(p), "want at least %#x", HeaderSize+RegionAccessSize)
	}
	m := RegionAccess{order.Uint64(p), order.Uint32(p[8:]), order.Uint32(p[12:]), p[RegionAccessSize:]}
	return m, checkAccess(c, "offset", m.Offset, uint64(m.Count), (c == CommandRegionRead) == reply, m.Data)
}
