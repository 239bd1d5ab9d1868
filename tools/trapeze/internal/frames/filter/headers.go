package filter

import "encoding/binary"

// headers are the fields of a frame that a filter looks at. IPv4 addresses are there as IPv6 has
// them, ::ffff:a.b.c.d. A field that is cut off or makes no sense is absent.
type headers struct {
	length              int
	destination, source [6]byte
	tags                int
	vlans               [maxTags]uint16
	kind                uint16 // EtherType behind the tags
	version             int    // of IP, 4 or 6; 0 for none
	addresses           bool   // of IP, or in ARP
	from, to            [16]byte
	protocol            int // of IP, behind the extension headers; -1 for none
	ports               bool
	fromPort, toPort    uint16
	endpoints           bool   // of a Trapeze NIC
	fromVI, toVI        uint32 // their numbers
}

const (
	maxTags       = 2
	maxExtensions = 8

	typeIPv4    = 0x0800
	typeARP     = 0x0806
	typeIPv6    = 0x86dd
	typeTag     = 0x8100
	typeService = 0x88a8
	typeTrapeze = 0x88b5

	// Behind the EtherType of a Trapeze frame (SPEC.md 8).
	trapezeHeader, atToVI, atFromVI = 50, 6, 10

	protocolICMP  = 1
	protocolTCP   = 6
	protocolUDP   = 17
	protocolICMP6 = 58
	protocolSCTP  = 132
)

// parse looks through the headers of a frame. It allocates nothing.
func (h *headers) parse(b []byte) {
	*h = headers{length: len(b), protocol: -1}
	if len(b) < 14 {
		return
	}
	h.destination, h.source = [6]byte(b), [6]byte(b[6:])
	at := 12
	h.kind = binary.BigEndian.Uint16(b[at:])
	for (h.kind == typeTag || h.kind == typeService) && h.tags < maxTags && len(b) >= at+6 {
		h.vlans[h.tags] = binary.BigEndian.Uint16(b[at+2:]) & 0xfff
		h.tags++
		at += 4
		h.kind = binary.BigEndian.Uint16(b[at:])
	}
	b = b[at+2:]
	switch h.kind {
	case typeIPv4:
		h.ipv4(b)
	case typeIPv6:
		h.ipv6(b)
	case typeTrapeze:
		if len(b) >= trapezeHeader {
			h.endpoints, h.toVI, h.fromVI = true, binary.LittleEndian.Uint32(b[atToVI:]), binary.LittleEndian.Uint32(b[atFromVI:])
		}
	case typeARP:
		if len(b) >= 28 && [6]byte(b) == [6]byte{0, 1, 8, 0, 6, 4} {
			h.from, h.to, h.addresses = mapped(b[14:]), mapped(b[24:]), true
		}
	}
}

// mapped returns an IPv4 address as one of IPv6.
func mapped(b []byte) [16]byte {
	return [16]byte{10: 0xff, 11: 0xff, 12: b[0], 13: b[1], 14: b[2], 15: b[3]}
}

func (h *headers) ipv4(b []byte) {
	if len(b) < 20 || b[0]>>4 != 4 {
		return
	}
	h.version, h.addresses, h.protocol = 4, true, int(b[9])
	h.from, h.to = mapped(b[12:]), mapped(b[16:])
	if size := int(b[0]&15) * 4; size >= 20 && size <= len(b) && binary.BigEndian.Uint16(b[6:])&0x1fff == 0 {
		h.transport(b[size:])
	}
}

func (h *headers) ipv6(b []byte) {
	if len(b) < 40 || b[0]>>4 != 6 {
		return
	}
	h.version, h.addresses = 6, true
	h.from, h.to = [16]byte(b[8:]), [16]byte(b[24:])
	next := int(b[6])
	b = b[40:]
	for range maxExtensions {
		size := 8
		switch next {
		case 0, 43, 60: // hop-by-hop options, routing, destination options (RFC 8200, 4)
			if len(b) >= 2 {
				size += 8 * int(b[1])
			}
		case 44: // fragment
		default:
			h.protocol = next
			h.transport(b)
			return
		}
		if len(b) < size {
			return
		}
		later := next == 44 && binary.BigEndian.Uint16(b[2:])&0xfff8 != 0
		next, b = int(b[0]), b[size:]
		if later { // of a later fragment the rest is payload
			h.protocol = next
			return
		}
	}
}

func (h *headers) transport(b []byte) {
	switch h.protocol {
	case protocolTCP, protocolUDP, protocolSCTP:
		if len(b) >= 4 {
			h.ports, h.fromPort, h.toPort = true, binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		}
	}
}
