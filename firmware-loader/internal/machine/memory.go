package machine

import "encoding/binary"

// Programs see 32-bit addresses (in 64-bit registers): the upper bits name a region,
// the lower ones are an offset in it. 32 bits are enough, and let a frame hook's
// context hold addresses where that of the Linux kernel has 32-bit fields. Unused
// regions are empty slices, so that one comparison with a length is the whole check
// of an access. Address 0 is in a region that is always empty.
const (
	regionShift = 27
	regionCount = 1 << (32 - regionShift)
	offsetMask  = 1<<regionShift - 1

	regionContext = 1
	regionStack   = 2
	regionFrame   = 3
	regionMaps    = 4 // that of map 0; others follow
	// regionHandles is where maps themselves are: nothing can be read there.
	regionHandles = regionCount - 1
)

// regions are the bytes of each region that may be accessed.
type regions [regionCount][]byte

// at returns n bytes at an address, or nil if they are not all inside of a region.
func (r *regions) at(address uint64, n uint32) []byte {
	region, offset := address>>regionShift, address&offsetMask
	if region >= regionCount {
		return nil
	}
	b := r[region]
	if offset+uint64(n) > uint64(len(b)) {
		return nil
	}
	return b[offset : offset+uint64(n) : offset+uint64(n)]
}

// loadSigned loads n bytes, 1, 2 or 4, as a signed number.
func (r *regions) loadSigned(address uint64, n uint32) (v uint64, ok bool) {
	b := r.at(address, n)
	switch len(b) {
	case 1:
		return uint64(int8(b[0])), true
	case 2:
		return uint64(int16(binary.LittleEndian.Uint16(b))), true
	case 4:
		return uint64(int32(binary.LittleEndian.Uint32(b))), true
	}
	return 0, false
}
