package tcpip

import (
	"slices"
	"testing"

	gvisor "gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/stack/gro"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// segment is a received TCP segment without its checksum, which the link does not look at.
type segment struct {
	six        bool
	from       byte // last byte of its address
	port       uint16
	seq, ack   uint32
	flags      header.TCPFlags
	options    []byte
	payload    int
	padding    int
	fragmented bool
}

// frame is the segment on Ethernet.
func (s segment) frame() []byte {
	size := header.TCPMinimumSize + len(s.options) + s.payload
	t := make(header.TCP, size)
	t.Encode(&header.TCPFields{SrcPort: s.port, DstPort: 80, SeqNum: s.seq, AckNum: s.ack, DataOffset: uint8(header.TCPMinimumSize + len(s.options)), Flags: s.flags})
	copy(t[header.TCPMinimumSize:], s.options)
	b := make([]byte, header.EthernetMinimumSize)
	if s.six {
		header.Ethernet(b).Encode(&header.EthernetFields{Type: header.IPv6ProtocolNumber})
		ip := make(header.IPv6, header.IPv6MinimumSize)
		ip.Encode(&header.IPv6Fields{PayloadLength: uint16(size), TransportProtocol: header.TCPProtocolNumber,
			SrcAddr: gvisor.AddrFrom16([16]byte{0xfd, 15: s.from}), DstAddr: gvisor.AddrFrom16([16]byte{0xfd, 15: 9})})
		b = append(b, ip...)
	} else {
		header.Ethernet(b).Encode(&header.EthernetFields{Type: header.IPv4ProtocolNumber})
		ip := make(header.IPv4, header.IPv4MinimumSize)
		f := header.IPv4Fields{TotalLength: uint16(header.IPv4MinimumSize + size), ID: uint16(s.ack), Protocol: uint8(header.TCPProtocolNumber),
			SrcAddr: gvisor.AddrFrom4([4]byte{10, 0, 0, s.from}), DstAddr: gvisor.AddrFrom4([4]byte{10, 0, 0, 9})}
		if s.fragmented {
			f.Flags = header.IPv4FlagMoreFragments
		}
		ip.Encode(&f)
		b = append(b, ip...)
	}
	return append(append(b, t...), make([]byte, s.padding)...)
}

// acked is the dispatcher that notes the acknowledgement numbers of what arrives.
type acked struct {
	numbers []uint32
}

func (a *acked) DeliverNetworkPacket(n gvisor.NetworkProtocolNumber, p *stack.PacketBuffer) {
	b := p.Data().AsRange().ToSlice()
	at := header.IPv4MinimumSize
	if n == header.IPv6ProtocolNumber {
		at = header.IPv6MinimumSize
	}
	number := uint32(0)
	if len(b) >= at+header.TCPMinimumSize {
		number = header.TCP(b[at:]).AckNumber()
	}
	a.numbers = append(a.numbers, number)
}
func (*acked) DeliverLinkPacket(gvisor.NetworkProtocolNumber, *stack.PacketBuffer) {}

// TestAcknowledgements: of acknowledgements that follow each other in a burst the stack gets the last one, and
// all that say more than how much has arrived.
func TestAcknowledgements(t *testing.T) {
	stamps := append(slices.Clone(stamped), 0, 0, 0, 1, 0, 0, 0, 2)
	blocks := []byte{1, 1, header.TCPOptionSACK, 10, 0, 0, 0, 1, 0, 0, 0, 2}
	ack := func(n uint32) segment { return segment{from: 1, port: 7, seq: 5, ack: n, flags: header.TCPFlagAck} }
	with := func(s segment, change func(*segment)) segment { change(&s); return s }
	for _, tt := range []struct {
		name   string
		frames []segment
		want   []uint32
	}{
		{"grow", []segment{ack(1), ack(2), ack(3)}, []uint32{3}},
		{"grow past 2^32", []segment{ack(1<<32 - 1), ack(0), ack(1)}, []uint32{1}},
		{"padded", []segment{with(ack(1), func(s *segment) { s.padding = 6 }), ack(2)}, []uint32{2}},
		{"IPv6", []segment{with(ack(1), func(s *segment) { s.six = true }), with(ack(2), func(s *segment) { s.six = true })}, []uint32{2}},
		{"with timestamps", []segment{with(ack(1), func(s *segment) { s.options = stamps }), with(ack(2), func(s *segment) { s.options = stamps })}, []uint32{2}},
		{"duplicates", []segment{ack(2), ack(2), ack(2)}, []uint32{2, 2, 2}},
		{"an old one", []segment{ack(2), ack(1)}, []uint32{2, 1}},
		{"with blocks", []segment{with(ack(1), func(s *segment) { s.options = blocks }), ack(2)}, []uint32{1, 2}},
		{"before blocks", []segment{ack(1), with(ack(2), func(s *segment) { s.options = blocks })}, []uint32{1, 2}},
		{"with payload", []segment{with(ack(1), func(s *segment) { s.payload = 1 }), ack(2)}, []uint32{1, 2}},
		{"before payload", []segment{ack(1), with(ack(2), func(s *segment) { s.payload = 1 })}, []uint32{1, 2}},
		{"an end", []segment{with(ack(1), func(s *segment) { s.flags |= header.TCPFlagFin }), ack(2)}, []uint32{1, 2}},
		{"a reset behind", []segment{ack(1), with(ack(2), func(s *segment) { s.flags |= header.TCPFlagRst })}, []uint32{1, 2}},
		{"congestion", []segment{with(ack(1), func(s *segment) { s.flags |= 1 << 6 }), ack(2)}, []uint32{1, 2}},
		{"another port", []segment{ack(1), with(ack(2), func(s *segment) { s.port = 8 })}, []uint32{1, 2}},
		{"another host", []segment{ack(1), with(ack(2), func(s *segment) { s.from = 2 })}, []uint32{1, 2}},
		{"another sequence number", []segment{ack(1), with(ack(2), func(s *segment) { s.seq = 6 })}, []uint32{1, 2}},
		{"another version of IP", []segment{ack(1), with(ack(2), func(s *segment) { s.six = true })}, []uint32{1, 2}},
		{"a fragment", []segment{with(ack(1), func(s *segment) { s.fragmented = true }), ack(2)}, []uint32{1, 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var frames [][]byte
			for _, s := range tt.frames {
				frames = append(frames, s.frame())
			}
			got, l := deliver(t, frames)
			should.Same(t, got, tt.want)
			should.Be(t, l.stats.Superseded.Load(), uint64(len(tt.frames)-len(tt.want)))
		})
	}
	// Frames that end early, wherever: the link reads no byte behind them.
	whole := with(ack(2), func(s *segment) { s.options, s.six = stamps, true }).frame()
	for n := header.EthernetMinimumSize; n < len(whole); n++ {
		got, _ := deliver(t, [][]byte{with(ack(1), func(s *segment) { s.options, s.six = stamps, true }).frame(), whole[:n]})
		must.Be(t, len(got), 2)
	}
}

// deliver gives frames to a link as one burst, and returns the acknowledgement numbers of what its stack gets.
func deliver(t *testing.T, frames [][]byte) ([]uint32, *link) {
	t.Helper()
	pool := must.Get(ethernet.NewPool(ethernet.PoolOptions{Buffers: 1024}))(t)
	s := &sink{o: ethernet.Options{Pool: pool, Queues: 1, MTU: 1500}, cache: pool.NewCache()}
	defer func() {
		s.cache.Close()
		should.OK(t, pool.Close())
	}()
	l := newLink(s, nil)
	var to acked
	l.Attach(&to)
	burst := make([]ethernet.Frame, len(frames))
	must.Be(t, s.cache.Alloc(burst), len(burst))
	for i, b := range frames {
		burst[i].Length = uint16(copy(pool.Buffer(burst[i].Buffer)[burst[i].Offset:], b))
	}
	var joined gro.GRO
	joined.Init(true)
	l.queues[0].deliver(&joined, burst)
	return to.numbers, l
}
