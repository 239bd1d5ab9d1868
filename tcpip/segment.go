package tcpip

import (
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// segments cuts a packet of the stack into the packets of a link. The stack makes TCP segments of up to 64 KiB and passes each through IP
// once. Here they are cut while they are copied, which costs a header and a checksum, and not another way through the stack.
type segments struct {
	head    [header.EthernetMinimumSize + header.IPv6MinimumSize + header.TCPHeaderMaximumSize]byte
	headers []byte // of the next packet, in head
	ip, tcp int    // where these headers begin; tcp is 0 if the packet goes as it is
	sums    bool   // the link completes checksums of TCP, and not the port or the wire. It does not change
	open    bool   // the checksum is that of the pseudo header so far
	flags   header.TCPFlags
	mss     int // bytes of payload in one packet

	view *buffer.View // the payload that is left: rest of this view, and the views behind it
	rest []byte
	left int // its bytes
}

// start begins with a packet.
func (s *segments) start(p *stack.PacketBuffer) {
	views, skip := p.AsViewList() // AsSlices would allocate
	s.view = views.Front()
	s.rest, s.left = s.view.AsSlice()[skip:], p.Size()
	s.headers = s.head[:min(p.HeaderSize(), len(s.head))]
	s.copy(s.headers)
	s.tcp, s.mss, s.open = 0, s.left, false
	if g := p.GSOOptions; g.Type == stack.GSOTCPv4 || g.Type == stack.GSOTCPv6 {
		s.ip = len(p.LinkHeader().Slice())
		s.tcp = s.ip + len(p.NetworkHeader().Slice())
		s.open, s.mss = g.NeedsCsum, min(s.left, int(g.MSS))
		s.flags = header.TCP(s.headers[s.tcp:]).Flags()
	}
}

// request returns the flags that ask a port to complete the checksum.
func (s *segments) request() ethernet.Flags {
	if header.IPVersion(s.headers[s.ip:]) == header.IPv6Version {
		return ethernet.SumTCP | ethernet.IPv6
	}
	return ethernet.SumTCP
}

// size returns the length of the next packet.
func (s *segments) size() int { return len(s.headers) + min(s.left, s.mss) }

// next writes the next packet into first, and into second the payload that does not fit there, and reports whether another follows. A packet whose
// checksum is computed has to fit into first.
func (s *segments) next(first, second []byte) (more bool) {
	n := min(s.left, s.mss)
	more = n < s.left
	if s.tcp > 0 {
		s.address(n, more)
	}
	at := copy(first, s.headers)
	fits := min(len(first)-at, n)
	s.copy(first[at : at+fits])
	s.copy(second[:n-fits])
	if s.tcp == 0 {
		return false
	}
	if s.open && s.sums {
		t := header.TCP(first[s.tcp : at+n])
		t.SetChecksum(^checksum.Checksum(t, 0)) // its field had the sum of the pseudo header
	}
	t := header.TCP(s.headers[s.tcp:])
	t.SetSequenceNumber(t.SequenceNumber() + uint32(n))
	return more
}

// address makes the headers those of a packet with n bytes of payload. Only the last one pushes, or ends the stream (RFC 9293, 3.8.1).
func (s *segments) address(n int, more bool) {
	t, ip := header.TCP(s.headers[s.tcp:]), s.headers[s.ip:s.tcp]
	flags := s.flags
	if more {
		flags &^= header.TCPFlagFin | header.TCPFlagPsh
	}
	t.SetFlags(uint8(flags))
	var packet header.Network
	if header.IPVersion(ip) == header.IPv4Version {
		four := header.IPv4(ip)
		four.SetTotalLength(uint16(len(ip) + len(t) + n))
		four.SetID(four.ID() + 1)
		four.SetChecksum(0)
		four.SetChecksum(^four.CalculateChecksum())
		packet = four
	} else {
		six := header.IPv6(ip)
		six.SetPayloadLength(uint16(len(ip) - header.IPv6MinimumSize + len(t) + n))
		packet = six
	}
	t.SetChecksum(header.PseudoHeaderChecksum(header.TCPProtocolNumber, packet.SourceAddress(), packet.DestinationAddress(), uint16(len(t)+n)))
}

// copy copies the next bytes of the packet.
func (s *segments) copy(to []byte) {
	s.left -= len(to)
	for len(to) > 0 {
		for len(s.rest) == 0 {
			s.view = s.view.Next()
			s.rest = s.view.AsSlice()
		}
		n := copy(to, s.rest)
		to, s.rest = to[n:], s.rest[n:]
	}
}
