package tcpip_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// tap is a port through which a test sends frames of its own, too.
type tap struct {
	ethernet.Port
	extra chan []byte
}

type tapQueue struct {
	ethernet.Queue
	t *tap
}

func (p *tap) Queue(i int) ethernet.Queue { return &tapQueue{p.Port.Queue(i), p} }

// Receive has what the test sends arrive among the others.
func (q *tapQueue) Receive(frames []ethernet.Frame) (int, error) {
	pool := q.t.Info().Options.Pool
	n := 0
	for n < len(frames) {
		select {
		case b := <-q.t.extra:
			if q.Cache().Alloc(frames[n:n+1]) == 0 {
				return n, nil
			}
			frames[n].Length = uint16(copy(pool.Buffer(frames[n].Buffer)[frames[n].Offset:], b))
			n++
			continue
		default:
		}
		break
	}
	more, err := q.Queue.Receive(frames[n:])
	return n + more, err
}

// attacked are two stacks of which the second also gets what the test sends, and a connection that must live.
func attacked(t testing.TB) (extra chan []byte, live net.Conn, to ethernet.MAC) {
	t.Helper()
	name := fmt.Sprintf("t%d", cables.Add(1))
	x, y := end(t, name, 1500), &tap{end(t, name, 1500), make(chan []byte, 256)}
	b := run(t, y, own(2))
	a := run(t, x, own(1))
	l := echoing(t, b, ":7")
	t.Cleanup(func() { _ = l.Close() })
	c := must.Get(a.DialContext(within(t, 20*time.Second), "tcp", "10.0.0.2:7"))(t)
	t.Cleanup(func() { _ = c.Close() })
	return y.extra, c, y.MAC()
}

// lives checks that a connection still answers.
func lives(t testing.TB, c net.Conn) {
	t.Helper()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	must.Get(c.Write([]byte("are you there?")))(t)
	must.Get(io.ReadFull(c, make([]byte, 14)))(t)
}

// segment is a TCP segment from a host to 10.0.0.2.
func segment(to ethernet.MAC, from [4]byte, source, port uint16, flags header.TCPFlags, seq uint32) []byte {
	b := make([]byte, 60)
	copy(b, to[:])
	b[6] = 2
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	ip := header.IPv4(b[14:])
	ip.Encode(&header.IPv4Fields{TotalLength: 40, TTL: 64, Protocol: 6})
	copy(ip[12:], from[:])
	copy(ip[16:], []byte{10, 0, 0, 2})
	ip.SetChecksum(^ip.CalculateChecksum())
	h := header.TCP(b[34:54])
	h.Encode(&header.TCPFields{SrcPort: source, DstPort: port, SeqNum: seq, DataOffset: 20, Flags: flags, WindowSize: 1000})
	sum := header.PseudoHeaderChecksum(header.TCPProtocolNumber, ip.SourceAddress(), ip.DestinationAddress(), 20)
	h.SetChecksum(^checksum.Checksum(h, sum))
	return b
}

// TestFloods: garbage, half connections and forged resets in numbers leave an old connection alone, and new ones can be made.
func TestFloods(t *testing.T) {
	extra, live, to := attacked(t)
	random := rand.New(rand.NewPCG(1, 1))
	for i := range 30_000 {
		switch i % 3 {
		case 0:
			b := make([]byte, random.IntN(200))
			for j := range b {
				b[j] = byte(random.Uint32())
			}
			if len(b) > 14 && random.IntN(2) == 0 {
				copy(b, to[:])
				binary.BigEndian.PutUint16(b[12:], []uint16{0x0800, 0x86dd, 0x0806}[random.IntN(3)])
			}
			extra <- b
		case 1:
			extra <- segment(to, [4]byte{10, 0, byte(random.Uint32()), byte(random.Uint32())}, uint16(random.Uint32()), 7, header.TCPFlagSyn, random.Uint32())
		case 2:
			// The port of the connection is not known to others, nor its numbers.
			extra <- segment(to, [4]byte{10, 0, 0, 1}, uint16(random.Uint32()), 7, header.TCPFlagRst, random.Uint32())
		}
	}
	lives(t, live)
	extra <- segment(to, [4]byte{10, 0, 0, 1}, uint16(live.LocalAddr().(*net.TCPAddr).Port), 7, header.TCPFlagRst, 1) // outside the window
	lives(t, live)
}

// forged is an ICMP message to 10.0.0.2 that blames a segment of the connection from port to 10.0.0.1.
func forged(to ethernet.MAC, kind header.ICMPv4Type, code header.ICMPv4Code, mtu, port uint16) []byte {
	blamed := segment(to, [4]byte{10, 0, 0, 2}, 7, port, header.TCPFlagAck, 12345)[14:42]
	copy(blamed[16:], []byte{10, 0, 0, 1})
	b := packet(to, 1, 0, make([]byte, header.ICMPv4MinimumSize+len(blamed)))
	h := header.ICMPv4(b[34:])
	h.SetType(kind)
	h.SetCode(code)
	h.SetMTU(mtu)
	copy(h[header.ICMPv4MinimumSize:], blamed)
	h.SetChecksum(0)
	h.SetChecksum(^checksum.Checksum(h, 0))
	return b
}

// packet is an IPv4 packet from 10.0.0.1 to 10.0.0.2, or a fragment of one.
func packet(to ethernet.MAC, protocol uint8, fragment uint16, payload []byte) []byte {
	b := make([]byte, 34+len(payload))
	copy(b, to[:])
	b[6] = 2
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	ip := header.IPv4(b[14:])
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(20 + len(payload)), TTL: 64, Protocol: protocol, ID: 77})
	binary.BigEndian.PutUint16(ip[6:], fragment)
	copy(ip[12:], []byte{10, 0, 0, 1, 10, 0, 0, 2})
	ip.SetChecksum(^ip.CalculateChecksum())
	copy(b[34:], payload)
	return b
}

// TestForgeries: ICMP messages that blame a connection, segments over others, and fragments over others change nothing of it.
func TestForgeries(t *testing.T) {
	extra, live, to := attacked(t)
	port := uint16(live.LocalAddr().(*net.TCPAddr).Port)
	lives(t, live) // netstack lets an ICMP message end a handshake
	for range 200 {
		for code := header.ICMPv4Code(0); code < 16; code++ {
			extra <- forged(to, header.ICMPv4DstUnreachable, code, 68, port)
		}
		extra <- forged(to, header.ICMPv4TimeExceeded, 0, 0, port)
		extra <- forged(to, header.ICMPv4ParamProblem, 0, 0, port)
		lives(t, live)
	}
	const more = 0x2000
	random := rand.New(rand.NewPCG(1, 2))
	for range 5000 {
		extra <- packet(to, 17, uint16(random.IntN(8192))|uint16(random.IntN(2))*more, make([]byte, random.IntN(1400)))
		extra <- segment(to, [4]byte{10, 0, 0, 1}, port, 7, header.TCPFlagAck|header.TCPFlagPsh, random.Uint32())
	}
	lives(t, live)
}

// FuzzFrames: whatever arrives, nothing crashes, and a connection lives.
func FuzzFrames(f *testing.F) {
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 1, 8, 0, 0x45})
	f.Add(udpFrame([]byte{2, 1, 6, 0}, 67, 68))
	f.Add(segment(ethernet.MAC{}, [4]byte{10, 0, 0, 9}, 1, 7, header.TCPFlagSyn, 1))
	extra, live, to := attacked(f)
	n := 0
	f.Fuzz(func(t *testing.T, b []byte) {
		b = b[:min(len(b), 1514)]
		if len(b) >= 6 && b[0]&1 == 0 {
			copy(b, to[:])
		}
		extra <- b
		if n++; n%256 == 0 {
			lives(t, live)
		}
	})
}
