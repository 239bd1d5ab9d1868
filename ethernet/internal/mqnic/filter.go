package mqnic

import (
	"encoding/binary"
	"slices"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
)

// filter selects frames by their destination and tag, as the device receives all.
type filter struct {
	all    bool
	mac    uint64   // the six bytes of the address, as the upper ones of a word
	groups []uint64 // sorted
	vlans  *[64]uint64
}

// addressMask has the bits of an address in the first eight bytes of a frame.
const addressMask = ^uint64(0xffff)

func newFilter(f port.Filter) filter {
	r := filter{all: f.Promiscuous, mac: word(f.MAC)}
	for _, g := range f.Groups {
		r.groups = append(r.groups, word(g))
	}
	slices.Sort(r.groups)
	if f.VLANs != nil {
		r.vlans = new([64]uint64)
		for _, id := range f.VLANs {
			r.vlans[id>>6] |= 1 << (id & 63)
		}
	}
	return r
}

func word(m ethernet.MAC) (w uint64) {
	for i, b := range m {
		w |= uint64(b) << (56 - 8*i)
	}
	return w
}

// passes reports whether a frame, which has a header at least, is to be received.
func (f *filter) passes(b []byte) bool {
	if len(b) < ethernet.HeaderSize {
		return false // the pool was closed
	}
	to := binary.BigEndian.Uint64(b) & addressMask
	if to != f.mac && to != addressMask {
		if _, ok := slices.BinarySearch(f.groups, to); !ok {
			return false
		}
	}
	if f.vlans == nil || len(b) < ethernet.HeaderSize+ethernet.TagSize || binary.BigEndian.Uint16(b[12:]) != 0x8100 {
		return true
	}
	id := binary.BigEndian.Uint16(b[14:]) & 0xfff
	return f.vlans[id>>6]&(1<<(id&63)) != 0
}
