package mqnic

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
)

// Where the checksum is in the header of TCP (RFC 9293, 3.1) and UDP (RFC 768), and what they are
// called in IP.
const (
	tcpSumAt, udpSumAt       = 16, 6
	protocolTCP, protocolUDP = 6, 17
)

// offload prepares the checksums that a frame asks for, and returns the command of its descriptor.
// The device sums TCP and UDP. The header of IPv4 is summed here, and so is a sum that begins where the
// command cannot say.
func (q *queue) offload(f *ethernet.Frame) (uint64, error) {
	bad := func(field string, v any) (uint64, error) {
		return 0, q.BadFrame(f, fmt.Sprintf("%s is %v, which does not fit the rest or was not switched on", field, v))
	}
	start := int(f.L2) + int(f.L3)
	tcp, udp, ip := f.Flags&ethernet.SumTCP != 0, f.Flags&ethernet.SumUDP != 0, f.Flags&ethernet.SumIPv4 != 0
	field := tcpSumAt
	if udp {
		field = udpSumAt
	}
	switch {
	case f.Flags&ethernet.VLANTagged != 0, q.device.options.Offloads&ethernet.OffloadSendSum == 0, tcp && udp, ip && f.Flags&ethernet.IPv6 != 0:
		return bad("Flags", fmt.Sprintf("%#x", uint16(f.Flags)))
	case f.L2 < ethernet.HeaderSize:
		return bad("L2", f.L2)
	case f.L3 < 20 || start > int(f.Length):
		return bad("L3", f.L3)
	case (tcp || udp) && start+field+2 > int(f.Length):
		return bad("Length", f.Length)
	}
	b := q.Cache().Pool().Bytes(*f)
	if len(b) < int(f.Length) {
		return 0, q.Port.Error("send", ethernet.ErrClosed) // the pool
	}
	b = b[:f.Length]
	if ip {
		header := b[f.L2:start]
		header[10], header[11] = 0, 0
		binary.BigEndian.PutUint16(header[10:], ^inetsum.Of(header))
	}
	switch {
	case !tcp && !udp:
		return 0, nil
	case start <= maxSumStart:
		return sumOn | uint64(field)<<sumFieldShift | uint64(start), nil
	}
	sum := ^inetsum.Of(b[start:]) // the sum of the pseudo header is in the field
	if udp && sum == 0 {
		sum = math.MaxUint16
	}
	binary.BigEndian.PutUint16(b[start+field:], sum)
	return 0, nil
}

// verdict says whether the checksums of a received frame are right. The device has summed all that
// follows the Ethernet header; sum is that, as it stands in the completion.
func verdict(b []byte, sum uint16) ethernet.Flags {
	at := ethernet.HeaderSize
	if len(b) < at+2 {
		return 0
	}
	kind := binary.BigEndian.Uint16(b[at-2:])
	if kind == 0x8100 && len(b) >= at+ethernet.TagSize { // a tag in the frame (802.1Q, 9.6)
		at += ethernet.TagSize
		kind = binary.BigEndian.Uint16(b[at-2:])
	}
	// What is not of the datagram is taken out of the sum: one's complement has no minus.
	total := uint64(sum) + uint64(^inetsum.Of(b[ethernet.HeaderSize:at]))
	switch kind {
	case 0x0800:
		return verdict4(b[at:], total)
	case 0x86dd:
		return verdict6(b[at:], total)
	}
	return 0
}

// verdict4 looks at IPv4 (RFC 791, 3.1). sum is that of all of b, which may be padded.
func verdict4(b []byte, sum uint64) ethernet.Flags {
	if len(b) < 20 || b[0]>>4 != 4 {
		return 0
	}
	header, total := int(b[0]&15)*4, int(binary.BigEndian.Uint16(b[2:]))
	if header < 20 || total < header || total > len(b) {
		return 0
	}
	if inetsum.Of(b[:header]) != math.MaxUint16 {
		return ethernet.IPSumBad
	}
	// A right header sums to all ones, which is zero.
	if binary.BigEndian.Uint16(b[6:])&0x3fff != 0 { // a fragment
		return ethernet.IPSumGood
	}
	return ethernet.IPSumGood | verdictL4(b[header:total], b[total:], b[12:20], b[9], sum, true)
}

// verdict6 looks at IPv6 (RFC 8200, 3) without extension headers.
func verdict6(b []byte, sum uint64) ethernet.Flags {
	if len(b) < 40 || b[0]>>4 != 6 {
		return 0
	}
	total := 40 + int(binary.BigEndian.Uint16(b[4:]))
	if total > len(b) {
		return 0
	}
	sum += uint64(^inetsum.Of(b[:40]))
	return verdictL4(b[40:total], b[total:], b[8:40], b[6], sum, false)
}

// verdictL4 judges TCP or UDP. sum is that of the segment and of the padding behind it.
func verdictL4(segment, padding, addresses []byte, protocol byte, sum uint64, optional bool) ethernet.Flags {
	switch {
	case protocol == protocolUDP && len(segment) >= 8:
		if segment[udpSumAt] == 0 && segment[udpSumAt+1] == 0 && optional { // it has none
			return 0
		}
	case protocol == protocolTCP && len(segment) >= 20:
	default:
		return 0
	}
	pad := inetsum.Add(0, padding)
	if len(segment)%2 != 0 { // the padding begins in the middle of a word
		folded := inetsum.Fold(pad)
		pad = uint64(folded>>8 | folded<<8)
	}
	sum += uint64(^inetsum.Fold(pad)) + inetsum.Add(uint64(protocol)+uint64(len(segment)), addresses)
	if inetsum.Fold(sum) != math.MaxUint16 {
		return ethernet.L4SumBad
	}
	return ethernet.L4SumGood
}
