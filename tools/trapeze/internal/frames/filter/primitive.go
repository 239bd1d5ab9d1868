package filter

import (
	"bytes"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// direction says which of two addresses or ports a word is about.
type direction int

const (
	either direction = iota
	source
	destination
	both
)

// of applies a test to what a direction names.
func of[T any](d direction, from, to T, test func(T) bool) bool {
	switch d {
	case source:
		return test(from)
	case destination:
		return test(to)
	case both:
		return test(from) && test(to)
	}
	return test(from) || test(to)
}

// directed reads src, dst, "src or dst" or "src and dst".
func (p *parser) directed() (direction, error) {
	d := either
	switch {
	case p.take("src"):
		d = source
	case p.take("dst"):
		return destination, nil
	default:
		return either, nil
	}
	// "src or dst" is one thing, "src 10.0.0.1 or dst 10.0.0.2" another: the word after src
	// tells.
	switch {
	case p.take("or"):
		d = either
	case p.take("and"):
		d = both
	default:
		return d, nil
	}
	if !p.take("dst") {
		return d, p.want("dst")
	}
	return d, nil
}

// protocols are words that stand for an IP protocol of one version or of any, or for an
// EtherType.
var protocols = map[string]struct{ kind, version, protocol int }{
	"ip": {kind: typeIPv4}, "ip6": {kind: typeIPv6}, "arp": {kind: typeARP},
	"icmp": {version: 4, protocol: protocolICMP}, "icmp6": {version: 6, protocol: protocolICMP6},
	"tcp": {protocol: protocolTCP}, "udp": {protocol: protocolUDP}, "sctp": {protocol: protocolSCTP},
}

// primitive reads one test.
func (p *parser) primitive() (predicate, error) {
	switch {
	case p.take("ether"):
		return p.ether()
	case p.take("broadcast"):
		return func(h *headers) bool { return h.destination == [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }, nil
	case p.take("multicast"):
		return func(h *headers) bool { return h.destination[0]&1 != 0 }, nil
	case p.take("vlan"):
		return p.vlan()
	case p.take("less"):
		n, err := p.number("a length in bytes", 0, 1<<16)
		return func(h *headers) bool { return h.length <= n }, err
	case p.take("greater"):
		n, err := p.number("a length in bytes", 0, 1<<16)
		return func(h *headers) bool { return h.length >= n }, err
	case p.take("proto"):
		return p.proto()
	}
	qualifier, qualified := protocols[p.word]
	if qualified {
		p.next()
	}
	test := func(h *headers) bool {
		switch {
		case qualifier.kind != 0:
			return int(h.kind) == qualifier.kind
		case qualifier.version != 0 && h.version != qualifier.version:
			return false
		}
		return h.protocol == qualifier.protocol
	}
	switch p.word {
	case "src", "dst", "host", "net", "port", "portrange", "vi":
	case "proto":
		if qualifier.kind == typeIPv4 || qualifier.kind == typeIPv6 {
			break
		}
		fallthrough
	default:
		switch {
		case qualified:
			return test, nil
		case startsAddress(p.word): // host may be left out
		default:
			return nil, p.want("a test, such as tcp, host or vlan")
		}
	}
	more, err := p.directedTest()
	if !qualified || err != nil {
		return more, err
	}
	return join(true, test, more), nil
}

// startsAddress says whether a word is meant as an address.
func startsAddress(w string) bool { return strings.ContainsAny(w, ".:") }

// directedTest reads a test of addresses, ports or the IP protocol.
func (p *parser) directedTest() (predicate, error) {
	if p.take("proto") {
		return p.proto()
	}
	d, err := p.directed()
	switch {
	case err != nil:
		return nil, err
	case p.take("net"):
		return p.network(d)
	case p.take("port"):
		n, err := p.number("a port number", 0, 1<<16-1)
		return ports(d, n, n), err
	case p.take("portrange"):
		return p.portRange(d)
	case p.take("vi"):
		n, err := p.number("the number of a VI", 0, 1<<16-1)
		return func(h *headers) bool {
			return h.endpoints && of(d, h.fromVI, h.toVI, func(vi uint32) bool { return int(vi) == n })
		}, err
	}
	p.take("host")
	return p.host(d)
}

// value takes the present word as a value, which must not be the end.
func (p *parser) value(what string, read func(string) bool) error {
	if p.word == "" || !read(p.word) {
		return p.want("%s", what)
	}
	p.next()
	return nil
}

// number reads a number from least to most, in any base of Go.
func (p *parser) number(what string, least, most int) (n int, err error) {
	err = p.value(what, func(s string) bool {
		v, err := strconv.ParseUint(s, 0, 32)
		n = int(v)
		return err == nil && n >= least && n <= most
	})
	return n, err
}

func (p *parser) ether() (predicate, error) {
	switch {
	case p.take("broadcast"):
		return func(h *headers) bool { return h.destination == [6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} }, nil
	case p.take("multicast"):
		return func(h *headers) bool { return h.destination[0]&1 != 0 }, nil
	case p.take("proto"):
		if named, ok := protocols[p.word]; ok && named.kind != 0 {
			p.next()
			return func(h *headers) bool { return int(h.kind) == named.kind }, nil
		}
		n, err := p.number("an EtherType, as 0x0800, ip, ip6 or arp", 0, 1<<16-1)
		return func(h *headers) bool { return int(h.kind) == n }, err
	}
	d, err := p.directed()
	if err != nil {
		return nil, err
	}
	p.take("host")
	var mac [6]byte
	err = p.value("a MAC address", func(s string) bool {
		hw, err := net.ParseMAC(s)
		copy(mac[:], hw)
		return err == nil && len(hw) == len(mac)
	})
	return func(h *headers) bool {
		return of(d, h.source, h.destination, func(a [6]byte) bool { return a == mac })
	}, err
}

func (p *parser) vlan() (predicate, error) {
	if p.word == "" || p.word[0] < '0' || p.word[0] > '9' {
		return func(h *headers) bool { return h.tags > 0 }, nil
	}
	id, err := p.number("a VLAN, 0 to 4095", 0, 4095)
	return func(h *headers) bool {
		for _, v := range h.vlans[:h.tags] {
			if int(v) == id {
				return true
			}
		}
		return false
	}, err
}

// proto reads the number or name of an IP protocol.
func (p *parser) proto() (predicate, error) {
	if named, ok := protocols[p.word]; ok && named.kind == 0 {
		p.next()
		return func(h *headers) bool { return h.protocol == named.protocol }, nil
	}
	n, err := p.number("an IP protocol, 0 to 255, or icmp, icmp6, tcp, udp or sctp", 0, 255)
	return func(h *headers) bool { return h.protocol == n }, err
}

func (p *parser) host(d direction) (predicate, error) {
	var want [16]byte
	err := p.value("an IP address", func(s string) bool {
		a, err := netip.ParseAddr(s)
		if err != nil || a.Zone() != "" {
			return false
		}
		want = a.As16()
		return true
	})
	return func(h *headers) bool {
		return h.addresses && of(d, h.from, h.to, func(a [16]byte) bool { return a == want })
	}, err
}

func (p *parser) network(d direction) (predicate, error) {
	var want, mask [16]byte
	err := p.value("a network such as 10.0.0.0/8, without bits behind its prefix", func(s string) bool {
		n, err := netip.ParsePrefix(s)
		if err != nil || n != n.Masked() {
			return false
		}
		bits := n.Bits()
		if n.Addr().Is4() {
			bits += 96
		}
		want = n.Addr().As16()
		copy(mask[:], bytes.Repeat([]byte{0xff}, bits/8))
		if bits%8 != 0 {
			mask[bits/8] = byte(0xff) << (8 - bits%8)
		}
		return true
	})
	return func(h *headers) bool {
		return h.addresses && of(d, h.from, h.to, func(a [16]byte) bool {
			for i := range a {
				if a[i]&mask[i] != want[i] {
					return false
				}
			}
			return true
		})
	}, err
}

func ports(d direction, least, most int) predicate {
	return func(h *headers) bool {
		return h.ports && of(d, h.fromPort, h.toPort, func(n uint16) bool { return int(n) >= least && int(n) <= most })
	}
}

func (p *parser) portRange(d direction) (predicate, error) {
	var least, most int
	err := p.value("ports such as 1000-2000", func(s string) bool {
		a, b, ok := strings.Cut(s, "-")
		from, err := strconv.ParseUint(a, 10, 16)
		to, err2 := strconv.ParseUint(b, 10, 16)
		least, most = int(from), int(to)
		return ok && err == nil && err2 == nil && least <= most
	})
	return ports(d, least, most), err
}
