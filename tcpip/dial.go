package tcpip

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"

	gvisor "gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
)

// DialContext connects as net.Dialer does: network is tcp, tcp4, tcp6, udp, udp4 or udp6, address a host and a port. A name
// stands for all its addresses, which are tried one after the other.
func (s *Stack) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	if err := s.usable(); err != nil {
		return fail(err)
	}
	kind := "tcp"
	if strings.HasPrefix(network, "udp") {
		kind = "udp"
	}
	to, _, err := s.resolve(ctx, kind, network, address)
	if err != nil {
		return fail(err)
	}
	if !to[0].Addr().IsValid() {
		return fail(&net.AddrError{Err: "missing host", Addr: address})
	}
	for _, a := range to {
		var c net.Conn
		full, protocol := fullAddress(a)
		if kind == "udp" {
			c, err = gonet.DialUDP(s.s, nil, &full, protocol)
		} else {
			c, err = gonet.DialContextTCP(ctx, s.s, full, protocol)
		}
		if err == nil {
			return c, nil
		}
		if ctx.Err() != nil {
			return fail(context.Cause(ctx))
		}
	}
	if dead := s.usable(); dead != nil {
		err = dead
	}
	return fail(err)
}

// Listen listens as net.Listen does: network is tcp, tcp4 or tcp6. A missing host stands for all addresses.
func (s *Stack) Listen(network, address string) (net.Listener, error) {
	full, protocol, err := s.local("tcp", network, address)
	if err == nil {
		var l *gonet.TCPListener
		if l, err = gonet.ListenTCP(s.s, full, protocol); err == nil {
			return listener{l, s}, nil
		}
	}
	return nil, &net.OpError{Op: "listen", Net: network, Err: err}
}

// listener is that of netstack, but says when the port has failed.
type listener struct {
	net.Listener
	s *Stack
}

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if dead := l.s.usable(); err != nil && dead != nil {
		err = &net.OpError{Op: "accept", Net: "tcp", Addr: l.Addr(), Err: dead}
	}
	return c, err
}

// ListenPacket listens as net.ListenPacket does: network is udp, udp4 or udp6.
func (s *Stack) ListenPacket(network, address string) (net.PacketConn, error) {
	full, protocol, err := s.local("udp", network, address)
	if err == nil {
		var c *gonet.UDPConn
		if c, err = gonet.DialUDP(s.s, &full, nil, protocol); err == nil {
			return c, nil
		}
	}
	return nil, &net.OpError{Op: "listen", Net: network, Err: err}
}

// Resolver looks names up by the DNS servers of the configuration, or of DHCP, over the stack.
func (s *Stack) Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		err := fmt.Errorf("%w: no DNS server is known: give Config.DNS", ErrNoRoute)
		s.mu.Lock()
		servers := s.dns
		s.mu.Unlock()
		for _, server := range servers {
			var c net.Conn
			if c, err = s.DialContext(ctx, network, netip.AddrPortFrom(server, 53).String()); err == nil {
				return c, nil
			}
		}
		return nil, err
	}}
}

// local is the address of a listener.
func (s *Stack) local(kind, network, address string) (full gvisor.FullAddress, protocol gvisor.NetworkProtocolNumber, err error) {
	if err := s.usable(); err != nil {
		return full, 0, err
	}
	all, version, err := s.resolve(context.Background(), kind, network, address)
	if err != nil {
		return full, 0, err
	}
	if full, protocol = fullAddress(all[0]); !all[0].Addr().IsValid() && version != 4 && !s.config.NoIPv6 {
		protocol = ipv6.ProtocolNumber // one of IPv6 takes both versions
	}
	return full, protocol, nil
}

// resolve returns the addresses that a host and a port stand for, at least one, and the version of IP that network names, 0 for both. A
// missing host is an address that is not valid.
func (s *Stack) resolve(ctx context.Context, kind, network, address string) (all []netip.AddrPort, version int, err error) {
	switch network {
	case kind:
	case kind + "4":
		version = 4
	case kind + "6":
		version = 6
	default:
		return nil, 0, net.UnknownNetworkError(network)
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, 0, err
	}
	n, err := net.DefaultResolver.LookupPort(ctx, kind, port)
	if err != nil {
		return nil, 0, err
	}
	var ips []netip.Addr
	if ip, err := netip.ParseAddr(host); err == nil || host == "" {
		ips = []netip.Addr{ip}
	} else if ips, err = s.Resolver().LookupNetIP(ctx, "ip", host); err != nil {
		return nil, 0, err
	}
	for _, ip := range ips {
		if ip = ip.Unmap(); version == 4 && ip.Is6() || version == 6 && ip.Is4() || ip.Is6() && s.config.NoIPv6 {
			continue
		}
		all = append(all, netip.AddrPortFrom(ip, uint16(n)))
	}
	if len(all) == 0 {
		return nil, 0, &net.AddrError{Err: "no suitable address", Addr: host}
	}
	return all, version, nil
}

// fullAddress is an address in the stack's terms.
func fullAddress(a netip.AddrPort) (gvisor.FullAddress, gvisor.NetworkProtocolNumber) {
	protocol := ipv4.ProtocolNumber
	if a.Addr().Is6() {
		protocol = ipv6.ProtocolNumber
	}
	return gvisor.FullAddress{NIC: nic, Addr: gvisor.AddrFromSlice(a.Addr().AsSlice()), Port: a.Port()}, protocol
}
