package tcpip

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"gvisor.dev/gvisor/pkg/buffer"
	gvisor "gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/checksum"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// DHCP runs below the stack, which has no address to send from yet: requests are frames of their own, and a filter of the
// link takes the answers.

// The ports of DHCP (RFC 2131, 4.1), and how often a request is repeated.
const (
	serverPort, clientPort = 67, 68
	dhcpEvery              = time.Second
	leastLease             = 30 * time.Second // a shorter one would keep the client busy
)

// lease is an address that a DHCP server has lent.
type lease struct {
	s       *Stack
	answers chan *dhcpv4.DHCPv4
	ack     *dhcpv4.DHCPv4
	address netip.Prefix
	stop    context.CancelFunc
	over    sync.WaitGroup
}

// lend asks for an address and keeps it.
func (s *Stack) lend(ctx context.Context) error {
	l := &lease{s: s, answers: make(chan *dhcpv4.DHCPv4, 16)}
	take := func(frame []byte) bool { return l.take(frame) }
	s.link.filter.Store(&take)
	s.lease = l
	ack, err := l.ask(ctx)
	if err != nil {
		advertised := func(p netip.Prefix) bool { return p.Addr().Is6() && p.Addr().IsGlobalUnicast() }
		if errors.Is(err, ErrNoDHCP) && slices.ContainsFunc(s.Addresses(), advertised) {
			s.link.filter.Store(nil)
			return nil // IPv6 alone
		}
		return err
	}
	if err := l.use(ctx, ack); err != nil {
		return err
	}
	renew, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.over.Go(func() { l.keep(renew) })
	return nil
}

// end stops the renewal.
func (l *lease) end() {
	if l == nil {
		return
	}
	l.s.link.filter.Store(nil)
	if l.stop != nil {
		l.stop()
		l.over.Wait()
	}
}

// ask gets an address: it takes the first offer that makes sense, and asks for it (RFC 2131, 3.1).
func (l *lease) ask(ctx context.Context) (*dhcpv4.DHCPv4, error) {
	discover, err := dhcpv4.NewDiscovery(net.HardwareAddr(l.s.link.mac), dhcpv4.WithRequestedOptions(
		dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer, dhcpv4.OptionIPAddressLeaseTime))
	if err != nil {
		return nil, err
	}
	for {
		offer, err := l.exchange(ctx, discover, dhcpv4.MessageTypeOffer)
		if err != nil {
			return nil, err
		}
		request, err := dhcpv4.NewRequestFromOffer(offer)
		if err != nil {
			continue // the offer makes no sense
		}
		ack, err := l.exchange(ctx, request, dhcpv4.MessageTypeAck)
		if err != nil {
			return nil, err
		}
		if ack != nil {
			return ack, nil
		}
	}
}

// exchange sends a request until a sound answer of a type comes. A refusal is nil.
func (l *lease) exchange(ctx context.Context, request *dhcpv4.DHCPv4, wants dhcpv4.MessageType) (*dhcpv4.DHCPv4, error) {
	again := time.NewTicker(dhcpEvery)
	defer again.Stop()
	for {
		l.send(request)
		for waiting := true; waiting; {
			select {
			case m := <-l.answers:
				_, sound := prefixOf(m)
				switch {
				case m.TransactionID != request.TransactionID:
				case m.MessageType() == dhcpv4.MessageTypeNak:
					return nil, nil
				case m.MessageType() == wants && sound:
					return m, nil
				}
			case <-again.C:
				waiting = false
			case <-ctx.Done():
				return nil, fmt.Errorf("%s: %w: %w (is there a server on this network? Config.Addresses sets an address without one)",
					l.s.address, ErrNoDHCP, context.Cause(ctx))
			}
		}
	}
}

// prefixOf is the address that an answer gives, and whether a host can have it.
func prefixOf(m *dhcpv4.DHCPv4) (p netip.Prefix, ok bool) {
	ip, ok := netip.AddrFromSlice(m.YourIPAddr.To4())
	ones, bits := m.SubnetMask().Size()
	if !ok || bits != 32 || ones < 1 || !ip.IsGlobalUnicast() || m.ServerIdentifier() == nil {
		return p, false
	}
	return netip.PrefixFrom(ip, ones), true
}

// use gives the stack what an answer says, once no other host has the address.
func (l *lease) use(ctx context.Context, ack *dhcpv4.DHCPv4) error {
	address, _ := prefixOf(ack)
	if l.address != address {
		if err := l.s.claim(ctx, address); err != nil {
			return err
		}
		if l.address.IsValid() {
			_ = l.s.remove(l.address)
		}
		if err := l.s.add(ctx, address); err != nil {
			return err
		}
	}
	l.ack, l.address = ack, address
	var router netip.Addr
	if all := ack.Router(); len(all) > 0 {
		router, _ = netip.AddrFromSlice(all[0].To4())
	}
	l.s.routers.set(func(r *routers) { r.leased = router })
	if len(l.s.config.DNS) == 0 {
		var servers []netip.Addr
		for _, ip := range ack.DNS() {
			if a, ok := netip.AddrFromSlice(ip.To4()); ok {
				servers = append(servers, a)
			}
		}
		l.s.mu.Lock()
		l.s.dns = servers
		l.s.mu.Unlock()
	}
	return nil
}

// keep asks for the address again at half of its time (RFC 2131, 4.4.5), and for another once it has run out.
func (l *lease) keep(ctx context.Context) {
	for {
		lent := max(l.ack.IPAddressLeaseTime(leastLease), leastLease)
		select {
		case <-time.After(lent / 2):
		case <-ctx.Done():
			return
		}
		renewal, err := dhcpv4.NewRenewFromAck(l.ack)
		if err != nil {
			return
		}
		left, cancel := context.WithTimeout(ctx, lent/2)
		ack, err := l.exchange(left, renewal, dhcpv4.MessageTypeAck)
		cancel()
		if err != nil || ack == nil {
			_ = l.s.remove(l.address)
			l.address = netip.Prefix{}
			if ack, err = l.ask(ctx); err != nil {
				return
			}
		}
		_ = l.use(ctx, ack) // if another host has the address the next round asks again
	}
}

// send broadcasts a message.
func (l *lease) send(m *dhcpv4.DHCPv4) {
	data := m.ToBytes()
	size := header.IPv4MinimumSize + header.UDPMinimumSize + len(data)
	b := make([]byte, size)
	ip := header.IPv4(b)
	ip.Encode(&header.IPv4Fields{TotalLength: uint16(size), TTL: 64, Protocol: uint8(header.UDPProtocolNumber),
		SrcAddr: header.IPv4Any, DstAddr: header.IPv4Broadcast})
	ip.SetChecksum(^ip.CalculateChecksum())
	u := header.UDP(b[header.IPv4MinimumSize:])
	u.Encode(&header.UDPFields{SrcPort: clientPort, DstPort: serverPort, Length: uint16(len(b) - header.IPv4MinimumSize)})
	copy(u[header.UDPMinimumSize:], data)
	sum := header.PseudoHeaderChecksum(header.UDPProtocolNumber, header.IPv4Any, header.IPv4Broadcast, uint16(len(u)))
	u.SetChecksum(^checksum.Checksum(u, sum))
	p := stack.NewPacketBuffer(stack.PacketBufferOptions{ReserveHeaderBytes: header.EthernetMinimumSize, Payload: buffer.MakeWithData(b)})
	defer p.DecRef()
	p.NetworkProtocolNumber = header.IPv4ProtocolNumber
	p.EgressRoute.LocalLinkAddress, p.EgressRoute.RemoteLinkAddress = l.s.link.mac, header.EthernetBroadcastAddress
	l.s.link.AddHeader(p)
	var list stack.PacketBufferList
	list.PushBack(p)
	_, _ = l.s.link.WritePackets(list)
}

// take takes a frame that is an answer of a DHCP server.
func (l *lease) take(frame []byte) bool {
	if header.Ethernet(frame).Type() != header.IPv4ProtocolNumber {
		return false
	}
	ip := header.IPv4(frame[header.EthernetMinimumSize:])
	if !ip.IsValid(len(ip)) || ip.TransportProtocol() != header.UDPProtocolNumber || ip.FragmentOffset() != 0 || ip.More() {
		return false
	}
	u := header.UDP(ip[ip.HeaderLength():ip.TotalLength()])
	if len(u) < header.UDPMinimumSize || u.DestinationPort() != clientPort || int(u.Length()) > len(u) || u.Length() < header.UDPMinimumSize {
		return false
	}
	m, err := dhcpv4.FromBytes(u[header.UDPMinimumSize:u.Length()])
	if err != nil || m.OpCode != dhcpv4.OpcodeBootReply || gvisor.LinkAddress(m.ClientHWAddr) != l.s.link.mac {
		return false
	}
	select {
	case l.answers <- m:
	default: // a flood
	}
	return true
}
