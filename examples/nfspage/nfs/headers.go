package nfs

import "encoding/binary"

// What the headers of a packet must say.
const (
	ipVersion4NoOptions = 0x45   // RFC 791, 3.1: version 4, five words
	ipFragment          = 0x3fff // more fragments, or an offset
	ipUDP               = 17
)

// checkHeaders refuses what is no whole IPv4 packet with UDP: RFC 791 and RFC 768. Checksums
// are not looked at, as nothing changes that they are of.
func checkHeaders(packet []byte) error {
	if len(packet) < headersSize {
		return &Error{"headers", uint64(len(packet)), ErrShort}
	}
	be := binary.BigEndian
	ip, udp := packet[:ipSize], packet[ipSize:headersSize]
	switch {
	case ip[0] != ipVersion4NoOptions:
		return &Error{"IP version and header length", uint64(ip[0]), ErrOther}
	case int(be.Uint16(ip[2:])) != len(packet):
		return &Error{"IP total length", uint64(be.Uint16(ip[2:])), ErrLength}
	case be.Uint16(ip[6:])&ipFragment != 0:
		return &Error{"IP fragment", uint64(be.Uint16(ip[6:])), ErrOther}
	case ip[9] != ipUDP:
		return &Error{"IP protocol", uint64(ip[9]), ErrOther}
	case int(be.Uint16(udp[4:])) != len(packet)-ipSize:
		return &Error{"UDP length", uint64(be.Uint16(udp[4:])), ErrLength}
	}
	return nil
}
