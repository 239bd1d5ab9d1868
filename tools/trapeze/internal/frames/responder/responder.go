// Package responder answers ARP and ICMP echo requests for IPv4 addresses on an Ethernet (RFC 826, RFC 792). An answer
// is made in the place of the request, goes to the station that has sent that, and is never longer.
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

	// Verdicts is their number.
	Verdicts
)

func (v Verdict) String() string {
	return [Verdicts]string{"other", "invalid", "arp", "echo"}[v]
}

// Responder answers for one station. Its methods change nothing but the frame.
type Responder struct {
	mac ethernet.MAC
	ips map[[4]byte]bool
}

// New makes a responder for the station mac with IPv4 addresses.
func New(mac ethernet.MAC, addresses []netip.Addr) *Responder {
	r := &Responder{mac, map[[4]byte]bool{}}
	for _, a := range addresses {
		r.ips[a.As4()] = true
	}
	return r
}

// EtherTypes, and the types of tags (802.1Q, 9.5): customer and service.
const (
	typeIPv4    = 0x0800
	typeARP     = 0x0806
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
	if !r.ips[target] || binary.BigEndian.Uint16(b[arpOperation:]) != 1 {
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

// hops is the TTL of echo replies.
const hops = 64

// Sizes of headers: IPv4 without options (RFC 791), ICMP echo.
const (
	ipv4Size = 20
	echoSize = 8
)

func (r *Responder) ipv4(b []byte, to ethernet.MAC) (int, Verdict) {
	if to.IsMulticast() || len(b) < ipv4Size || b[9] != 1 { // ICMP
		return 0, Other
	}
	source, destination := [4]byte(b[12:]), [4]byte(b[16:])
	if !r.ips[destination] {
		return 0, Other
	}
	length := int(binary.BigEndian.Uint16(b[2:]))
	switch {
	case b[0]>>4 != 4 || b[0]&15 < 5 || length > len(b) || length < int(b[0]&15)*4:
		return 0, Invalid
	case b[0]&15 > 5 || binary.BigEndian.Uint16(b[6:])&0x3fff != 0: // options; a fragment
		return 0, Other
	case inetsum.Of(b[:ipv4Size]) != 0xffff || r.ips[source] || !oneHost(source) || length < ipv4Size+echoSize:
		return 0, Invalid
	}
	icmp := b[ipv4Size:length]
	switch {
	case inetsum.Of(icmp) != 0xffff:
		return 0, Invalid
	case icmp[0] != 8 || icmp[1] != 0: // echo request
		return 0, Other
	}
	reply(icmp)
	copy(b[12:], destination[:])
	copy(b[16:], source[:])
	b[8] = hops
	binary.BigEndian.PutUint16(b[10:], 0)
	binary.BigEndian.PutUint16(b[10:], ^inetsum.Of(b[:ipv4Size]))
	return length, Echo
}

// oneHost reports whether an IPv4 address can be one host's on an Ethernet.
func oneHost(a [4]byte) bool { return a[0] != 0 && a[0] != 127 && a[0] < 224 }

// reply makes an echo reply of a request. Nothing else in it changes, so the checksum
// changes by the difference of the types (RFC 1624).
func reply(icmp []byte) {
	old := binary.BigEndian.Uint16(icmp)
	icmp[0] = 0
	s := inetsum.Fold(inetsum.Add(uint64(^binary.BigEndian.Uint16(icmp[2:]))+uint64(^old), icmp[:2]))
	if s == 0xffff {
		s = 0 // the other zero: where all else is zero, only a checksum of ones is right
	}
	binary.BigEndian.PutUint16(icmp[2:], ^s)
}
