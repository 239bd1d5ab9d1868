package tcpip

import (
	"bytes"

	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/seqnum"
)

// stamped begins options that are timestamps alone (RFC 7323, appendix A), two of 4 bytes.
var stamped = []byte{header.TCPOptionNOP, header.TCPOptionNOP, header.TCPOptionTS, header.TCPOptionTSLength}

// superseded reports whether next, the frame behind b, says all that b says: both only acknowledge, on one connection, and next more. For
// each acknowledgement the stack looks at all segments in flight and sends a short one, which costs more than the data.
func superseded(b, next []byte) bool {
	x, from := acknowledgement(b)
	y, to := acknowledgement(next)
	return x != nil && y != nil && bytes.Equal(from, to) && bytes.Equal(x[:header.TCPAckNumOffset], y[:header.TCPAckNumOffset]) &&
		seqnum.Value(x.AckNumber()).LessThan(seqnum.Value(y.AckNumber()))
}

// acknowledgement returns the TCP header and the addresses of a frame that only acknowledges, nil of others: no payload, no flag but ACK,
// no options but timestamps.
func acknowledgement(b []byte) (t header.TCP, addresses []byte) {
	if n := len(b) - header.EthernetMinimumSize - header.IPv6MinimumSize; n < 0 || n > header.TCPHeaderMaximumSize { // most have data, and are longer
		return nil, nil
	}
	ip, size := b[header.EthernetMinimumSize:], 0
	switch four, six := header.IPv4(ip), header.IPv6(ip); {
	case ip[0] == 0x45 && four.TransportProtocol() == header.TCPProtocolNumber && !four.More() && four.FragmentOffset() == 0:
		t, addresses, size = header.TCP(ip[header.IPv4MinimumSize:]), ip[12:header.IPv4MinimumSize], int(four.TotalLength())-header.IPv4MinimumSize
	case ip[0]>>4 == 6 && six.NextHeader() == uint8(header.TCPProtocolNumber):
		t, addresses, size = header.TCP(ip[header.IPv6MinimumSize:]), ip[8:header.IPv6MinimumSize], int(six.PayloadLength())
	}
	if len(t) < max(size, header.TCPMinimumSize) || int(t.DataOffset()) != size || t.Flags() != header.TCPFlagAck ||
		size != header.TCPMinimumSize && (size != header.TCPMinimumSize+len(stamped)+8 || !bytes.HasPrefix(t[header.TCPMinimumSize:], stamped)) {
		return nil, nil
	}
	return t, addresses
}
