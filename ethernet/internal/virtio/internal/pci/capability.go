package pci

import (
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// capabilityVendor is the ID of vendor-specific capabilities, of which virtio's are ones
// (PCI Code and ID Assignment).
const capabilityVendor = 0x09

// Types of structures ("Virtio Structure PCI Capabilities").
const (
	typeCommon = 1
	typeNotify = 2
	typeDevice = 4
)

// Sizes in bytes: of a capability, of that of notifications, and what is used of the
// structures at least.
const (
	capabilitySize = 16
	notifySize     = 20
	leastCommon    = 56
	leastNotify    = 2
	leastDevice    = 8
)

// place is where a structure is.
type place struct {
	bar            int
	offset, length uint64
}

// layout says where the structures of a device are. Those that are used are inside their
// BARs, which are of memory.
type layout struct {
	common, notify, device place
	multiplier             uint64 // from a queue's notify offset to bytes
}

// findLayout looks for the structures in configuration space, whose chain of capabilities
// was checked when it was parsed as c; bar returns the size of a memory BAR, 0 for any
// other. It fails with ErrProtocol.
func findLayout(c *vfio.Config, space []byte, bar func(index int) uint64) (l layout, err error) {
	found := map[byte]bool{}
	for _, at := range c.Capabilities {
		if at.ID != capabilityVendor {
			continue
		}
		kind, p, multiplier, err := parseCapability(space[at.Offset:])
		if err != nil {
			return l, fmt.Errorf("%w, at %#x", err, at.Offset)
		}
		// The first of a kind that can be used is the one that the device likes best;
		// reserved BARs, and those of ports, are not used.
		if p.bar >= len(c.BARs) || bar(p.bar) == 0 || found[kind] {
			continue
		}
		var to *place
		least, align := uint64(leastCommon), uint64(4)
		switch kind {
		case typeCommon:
			to = &l.common
		case typeNotify:
			to, least, align = &l.notify, leastNotify, 2
			l.multiplier = multiplier
		case typeDevice:
			to, least = &l.device, leastDevice
		default:
			continue
		}
		if size := bar(p.bar); p.offset > size || p.length > size-p.offset {
			return l, fmt.Errorf("%w: structure %d, %#x bytes at %#x, leaves BAR%d, which has %#x", ethernet.ErrProtocol, kind, p.length, p.offset, p.bar, size)
		}
		if p.length < least || p.offset%align != 0 {
			return l, fmt.Errorf("%w: structure %d has %#x bytes at %#x, want %#x aligned to %d", ethernet.ErrProtocol, kind, p.length, p.offset, least, align)
		}
		found[kind] = true
		*to = p
	}
	for _, kind := range []byte{typeCommon, typeNotify, typeDevice} {
		if !found[kind] {
			return l, fmt.Errorf("%w: it has no structure %d in a memory BAR: it is older than virtio 1.0", ethernet.ErrNotSupported, kind)
		}
	}
	return l, nil
}

// parseCapability reads the capability that b begins with.
func parseCapability(b []byte) (kind byte, p place, multiplier uint64, err error) {
	// The chain's walk has seen that there are 4 bytes.
	kind, length := b[3], int(b[2])
	switch kind {
	case typeCommon, typeNotify, typeDevice:
	default:
		return kind, place{bar: len(vfio.Config{}.BARs)}, 0, nil // another kind, of any form
	}
	if length < capabilitySize || kind == typeNotify && length < notifySize || length > len(b) {
		return 0, p, 0, fmt.Errorf("%w: virtio capability %d has %d bytes", ethernet.ErrProtocol, kind, length)
	}
	le := binary.LittleEndian
	p = place{bar: int(b[4]), offset: uint64(le.Uint32(b[8:])), length: uint64(le.Uint32(b[12:]))}
	if kind == typeNotify {
		multiplier = uint64(le.Uint32(b[16:]))
	}
	return kind, p, multiplier, nil
}
