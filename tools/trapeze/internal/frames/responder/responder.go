// Package responder answers for IP addresses on an Ethernet: ARP and ICMP echo requests
// (RFC 826, RFC 792), and neighbour solicitations and echo requests of IPv6 (RFC 4861,
// RFC 4443). An answer is made in the place of the request, goes to the station that has sent
// that, and is never longer.
package responder

import (
	"encoding/binary"
	"net/netip"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
)

// Verdict says what a frame was.
type Verdict uint8

const (
	// Other: nothing that is answered, or not for us: another protocol, address or type
	// of message, a group's address where it must be ours, a fragment, IP options.
	Other Verdict = iota
	// Invalid: for us, and with a wrong length, checksum or address in it.
	Invalid
	// The answered ones.
	ARP
	Echo
	Neighbour
	Echo6

	// Verdicts is their number.
	Verdicts
)

func (v Verdict) String() string {
	return [Verdicts]string{"other", "invalid", "arp", "echo", "neighbour", "echo6"}[v]
}

// Responder answers for one station. Its methods change nothing but the frame.
type Responder struct {
	mac ethernet.MAC
	v4  map[[4]byte]struct{}
	v6  map[[16]byte]struct{}
}

// New makes a responder for the station mac with addresses, of IPv4 or IPv6.
func New(mac ethernet.MAC, addresses []netip.Addr) *Responder {
	r := &Responder{mac: mac, v4: map[[4]byte]struct{}{}, v6: map[[16]byte]struct{}{}}
	for _, a := range addresses {
		if a = a.Unmap(); a.Is4() {
			r.v4[a.As4()] = struct{}{}
		} else {
			r.v6[a.As16()] = struct{}{}
		}
	}
	return r
}

// Groups returns the groups to which neighbours send solicitations for our addresses:
// 33:33:ff and the last three bytes of each (RFC 4291, 2.7.1; RFC 2464, 7).
func (r *Responder) Groups() (groups []ethernet.MAC) {
	seen := map[ethernet.MAC]bool{}
	for a := range r.v6 {
		if g := solicited(a); !seen[g] {
			seen[g] = true
			groups = append(groups, g)
		}
	}
	return groups
}

func solicited(a [16]byte) ethernet.MAC { return ethernet.MAC{0x33, 0x33, 0xff, a[13], a[14], a[15]} }

// EtherTypes, and the types of tags (802.1Q, 9.5): customer and service.
const (
	typeIPv4    = 0x0800
	typeARP     = 0x0806
	typeIPv6    = 0x86dd
	typeTag     = 0x8100
	typeService = 0x88a8
)

// maxTags is the number of VLAN tags that are looked through. Answers have the same ones.
const maxTags = 2

// Answer makes an answer of a frame, in its place, and returns the length of the answer
// in bytes, at most the frame's. It is 0 if there is none: the frame is then as it was.
func (r *Responder) Answer(frame []byte) (int, Verdict) {
	if len(frame) < ethernet.HeaderSize {
		return 0, Other
	}
	to, from := ethernet.MAC(frame), ethernet.MAC(frame[6:])
	if !from.IsStation() || from == r.mac || !to.IsMulticast() && to != r.mac {
		return 0, Other
	}
	at := 12
	kind := binary.BigEndian.Uint16(frame[at:])
	for n := 0; (kind == typeTag || kind == typeService) && n < maxTags; n++ {
		at += ethernet.TagSize
		if len(frame) < at+2 {
			return 0, Other
		}
		kind = binary.BigEndian.Uint16(frame[at:])
	}
	at += 2
	n, v := 0, Other
	switch kind {
	case typeARP:
		n, v = r.arp(frame[at:], to, from)
	case typeIPv4:
		n, v = r.ipv4(frame[at:], to)
	case typeIPv6:
		n, v = r.ipv6(frame[at:], to, from)
	}
	if n == 0 {
		return 0, v
	}
	copy(frame, from[:])
	copy(frame[6:], r.mac[:])
	return at + n, v
}

// Offsets in ARP for Ethernet and IPv4 (RFC 826), and its length.
const (
	arpOperation = 6
	arpSender    = 8 // its hardware address, then its IP address
	arpTarget    = 18
	arpSize      = 28
)

// arpEthernet begins every ARP message about IPv4 on Ethernet: hardware 1,
// protocol 0x800, addresses of 6 and 4 bytes.
var arpEthernet = [6]byte{0, 1, 8, 0, 6, 4}

func (r *Responder) arp(b []byte, to, from ethernet.MAC) (int, Verdict) {
	if to.IsMulticast() && to != broadcast {
		return 0, Other
	}
	if len(b) < arpSize || [6]byte(b) != arpEthernet {
		return 0, Invalid
	}
	sender, target := [4]byte(b[arpSender+6:]), [4]byte(b[arpTarget+6:])
	if _, ours := r.v4[target]; !ours || binary.BigEndian.Uint16(b[arpOperation:]) != 1 {
		return 0, Other
	}
	// A station that asks for its own address announces it, or has ours. No station gets an
	// answer that another one has asked for.
	if sender == target || ethernet.MAC(b[arpSender:]) != from {
		return 0, Invalid
	}
	binary.BigEndian.PutUint16(b[arpOperation:], 2)
	copy(b[arpTarget:], b[arpSender:arpTarget])
	copy(b[arpSender:], r.mac[:])
	copy(b[arpSender+6:], target[:])
	return arpSize, ARP
}

var broadcast = ethernet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// hops is the TTL and hop limit of echo replies.
const hops = 64

// Sizes of headers: IPv4 without options (RFC 791), IPv6 (RFC 8200), ICMP echo.
const (
	ipv4Size = 20
	ipv6Size = 40
	echoSize = 8
)

func (r *Responder) ipv4(b []byte, to ethernet.MAC) (int, Verdict) {
	if to.IsMulticast() || len(b) < ipv4Size || b[9] != 1 { // ICMP
		return 0, Other
	}
	source, destination := [4]byte(b[12:]), [4]byte(b[16:])
	if _, ours := r.v4[destination]; !ours {
		return 0, Other
	}
	length := int(binary.BigEndian.Uint16(b[2:]))
	switch _, ours := r.v4[source]; {
	case b[0]>>4 != 4 || b[0]&15 < 5 || length > len(b) || length < int(b[0]&15)*4:
		return 0, Invalid
	case b[0]&15 > 5 || binary.BigEndian.Uint16(b[6:])&0x3fff != 0: // options; a fragment
		return 0, Other
	case inetsum.Of(b[:ipv4Size]) != 0xffff || ours || !oneHost(source) || length < ipv4Size+echoSize:
		return 0, Invalid
	}
	icmp := b[ipv4Size:length]
	switch {
	case inetsum.Of(icmp) != 0xffff:
		return 0, Invalid
	case icmp[0] != 8 || icmp[1] != 0: // echo request
		return 0, Other
	}
	reply(icmp, 0)
	copy(b[12:], destination[:])
	copy(b[16:], source[:])
	b[8] = hops
	binary.BigEndian.PutUint16(b[10:], 0)
	binary.BigEndian.PutUint16(b[10:], ^inetsum.Of(b[:ipv4Size]))
	return length, Echo
}

// oneHost reports whether an IPv4 address can be one host's on an Ethernet.
func oneHost(a [4]byte) bool { return a[0] != 0 && a[0] != 127 && a[0] < 224 }

// ICMPv6 types (RFC 4443, RFC 4861).
const (
	echoRequest6      = 128
	echoReply6        = 129
	solicitation      = 135
	advertisement     = 136
	solicitationSize  = 24
	linkAddressOption = 8
)

func (r *Responder) ipv6(b []byte, to, from ethernet.MAC) (int, Verdict) {
	if len(b) < ipv6Size+echoSize || b[6] != 58 { // ICMPv6, and nothing before it
		return 0, Other
	}
	source, destination := [16]byte(b[8:]), [16]byte(b[24:])
	length := int(binary.BigEndian.Uint16(b[4:]))
	if b[0]>>4 != 6 || ipv6Size+length > len(b) || length < echoSize {
		return 0, Invalid
	}
	icmp := b[ipv6Size : ipv6Size+length]
	target := destination
	switch icmp[0] {
	case echoRequest6:
		if to.IsMulticast() {
			return 0, Other
		}
	case solicitation:
		if len(icmp) < solicitationSize {
			return 0, Invalid
		}
		target = [16]byte(icmp[8:])
	default:
		return 0, Other
	}
	if _, ours := r.v6[target]; !ours || source == [16]byte{} {
		return 0, Other // who has no address yet looks for duplicates of the one it wants
	}
	// The pseudo header has both addresses, the length and the next header (RFC 8200, 8.1).
	if _, ours := r.v6[source]; ours || !oneHost6(source) || icmp[1] != 0 || inetsum.Fold(inetsum.Add(uint64(length)+58, b[8:ipv6Size+length])) != 0xffff {
		return 0, Invalid
	}
	if icmp[0] == echoRequest6 {
		reply(icmp, echoReply6)
		copy(b[8:], destination[:])
		copy(b[24:], source[:])
		b[7] = hops
		return ipv6Size + length, Echo6
	}
	if b[7] != 255 || !asksFor(target, destination, to) || !honest(icmp[solicitationSize:], from) {
		return 0, Invalid // from beyond a router, for another group, or about another station
	}
	return r.advertise(b, icmp, target, source), Neighbour
}

// oneHost6 reports whether an IPv6 address can be one host's on an Ethernet.
func oneHost6(a [16]byte) bool {
	return a[0] != 0xff && a != [16]byte{} && a != [16]byte{15: 1}
}

// asksFor reports whether a solicitation for target is where it should be: sent to the
// target itself, or to the group of addresses that end like it.
func asksFor(target, destination [16]byte, to ethernet.MAC) bool {
	if destination == target {
		return !to.IsMulticast()
	}
	group := [16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: target[13], 14: target[14], 15: target[15]}
	return destination == group && to == solicited(target)
}

// honest reports whether the options of a solicitation are whole, and name no other
// station than the one that has sent it.
func honest(options []byte, from ethernet.MAC) bool {
	for len(options) > 0 {
		if len(options) < 2 || options[1] == 0 || len(options) < 8*int(options[1]) {
			return false
		}
		n := 8 * int(options[1])
		if options[0] == 1 && (n != linkAddressOption || ethernet.MAC(options[2:]) != from) {
			return false
		}
		options = options[n:]
	}
	return true
}

// advertise makes a neighbour advertisement of a solicitation (RFC 4861, 4.4). It has our
// station's address where the solicitation had room for an option; without, it came to
// us alone from a station that has the address.
func (r *Responder) advertise(b, icmp []byte, target, source [16]byte) int {
	const solicited, override = 0x40, 0x20
	copy(b[8:], target[:])
	copy(b[24:], source[:])
	b[7] = 255
	icmp[0] = advertisement
	clear(icmp[2:8])
	icmp[4] = solicited | override
	n := solicitationSize
	if len(icmp) >= n+linkAddressOption {
		icmp[n], icmp[n+1] = 2, 1
		copy(icmp[n+2:], r.mac[:])
		n += linkAddressOption
	}
	binary.BigEndian.PutUint16(b[4:], uint16(n))
	binary.BigEndian.PutUint16(icmp[2:], ^inetsum.Fold(inetsum.Add(uint64(n)+58, b[8:ipv6Size+n])))
	return ipv6Size + n
}

// reply makes an echo reply of a request. Nothing else in it changes, so the checksum
// changes by the difference of the types (RFC 1624).
func reply(icmp []byte, to byte) {
	old := binary.BigEndian.Uint16(icmp)
	icmp[0] = to
	s := inetsum.Fold(inetsum.Add(uint64(^binary.BigEndian.Uint16(icmp[2:]))+uint64(^old), icmp[:2]))
	if s == 0xffff {
		s = 0 // the other zero: where all else is zero, only a checksum of ones is right
	}
	binary.BigEndian.PutUint16(icmp[2:], ^s)
}
