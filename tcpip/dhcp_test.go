package tcpip_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"gvisor.dev/gvisor/pkg/tcpip/header"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/tcpip"
)

// server is a DHCP server at the other end of a cable. spoil changes its answers, each of which then goes out ahead of the sound one.
func server(t *testing.T, p ethernet.Port, spoil []func(m *dhcpv4.DHCPv4)) {
	t.Helper()
	done, over := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() {
		close(done)
		<-over
	})
	q, pool := p.Queue(0), p.Info().Options.Pool
	frames := make([]ethernet.Frame, 16)
	go func() {
		defer close(over)
		for {
			select {
			case <-done:
				return
			default:
			}
			n, err := q.Receive(frames)
			if err != nil {
				return
			}
			for _, f := range frames[:n] {
				b := pool.Bytes(f)
				if len(b) < 300 || b[header.EthernetMinimumSize+9] != 17 {
					continue
				}
				ask, err := dhcpv4.FromBytes(b[header.EthernetMinimumSize+28:])
				if err != nil {
					continue
				}
				for _, s := range append(slices.Clone(spoil), func(*dhcpv4.DHCPv4) {}) {
					kind := dhcpv4.MessageTypeOffer
					if ask.MessageType() == dhcpv4.MessageTypeRequest {
						kind = dhcpv4.MessageTypeAck
					}
					m, err := dhcpv4.NewReplyFromRequest(ask, dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(net.IPv4(10, 7, 0, 9)),
						dhcpv4.WithServerIP(net.IPv4(10, 7, 0, 1)), dhcpv4.WithNetmask(net.CIDRMask(16, 32)), dhcpv4.WithRouter(net.IPv4(10, 7, 0, 1)),
						dhcpv4.WithDNS(net.IPv4(10, 7, 0, 3)), dhcpv4.WithLeaseTime(3600), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 7, 0, 1))))
					if err != nil {
						continue
					}
					s(m)
					say(q, pool, udpFrame(m.ToBytes(), 67, 68))
				}
			}
			q.Cache().Free(frames[:n])
			if n == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}()
}

// say sends a frame.
func say(q ethernet.Queue, pool *ethernet.Pool, b []byte) {
	f := make([]ethernet.Frame, 1)
	if q.Cache().Alloc(f) == 0 {
		return
	}
	f[0].Length = uint16(copy(pool.Buffer(f[0].Buffer)[f[0].Offset:], b))
	if n, _ := q.Send(f); n == 0 {
		q.Cache().Free(f)
	}
}

// udpFrame is a broadcast datagram.
func udpFrame(data []byte, from, to uint16) []byte {
	b := make([]byte, header.EthernetMinimumSize+28+len(data))
	for i := range 6 {
		b[i], b[6+i] = 0xff, 2
	}
	binary.BigEndian.PutUint16(b[12:], 0x0800)
	ip := header.IPv4(b[14:])
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(28 + len(data)), TTL: 64, Protocol: 17, DstAddr: header.IPv4Broadcast})
	ip.SetChecksum(^ip.CalculateChecksum())
	header.UDP(b[34:]).Encode(&header.UDPFields{SrcPort: from, DstPort: to, Length: uint16(8 + len(data))})
	copy(b[42:], data)
	return b
}

// TestDHCP: a stack takes address, router and name servers of a server, whatever lies come first.
func TestDHCP(t *testing.T) {
	name := fmt.Sprintf("t%d", cables.Add(1))
	x, y := end(t, name, 1500), end(t, name, 1500)
	server(t, y, []func(*dhcpv4.DHCPv4){
		func(m *dhcpv4.DHCPv4) { m.TransactionID[0]++ },
		func(m *dhcpv4.DHCPv4) { m.YourIPAddr = net.IPv4zero },
		func(m *dhcpv4.DHCPv4) { m.YourIPAddr = net.IPv4(224, 0, 0, 5) },
		func(m *dhcpv4.DHCPv4) { m.UpdateOption(dhcpv4.OptSubnetMask(net.IPMask{255, 0, 255, 0})) },
		func(m *dhcpv4.DHCPv4) { m.ClientHWAddr = net.HardwareAddr{9, 9, 9, 9, 9, 9} },
		func(m *dhcpv4.DHCPv4) { m.Options.Del(dhcpv4.OptionServerIdentifier) },
		func(m *dhcpv4.DHCPv4) { m.OpCode = dhcpv4.OpcodeBootRequest },
	})
	s := run(t, x, tcpip.Config{NoIPv6: true, Timeout: 20 * time.Second})
	if got := s.Addresses(); !slices.Equal(got, []netip.Prefix{netip.MustParsePrefix("10.7.0.9/16")}) {
		t.Errorf("addresses %v", got)
	}
}

// TestNoDHCP: a server that says nothing is an error, which says what to do.
func TestNoDHCP(t *testing.T) {
	name := fmt.Sprintf("t%d", cables.Add(1))
	x := end(t, name, 1500)
	end(t, name, 1500)
	if _, err := tcpip.New(t.Context(), x, tcpip.Config{NoIPv6: true, Timeout: 300 * time.Millisecond}); !errors.Is(err, tcpip.ErrNoDHCP) {
		t.Errorf("%v", err)
	}
}
