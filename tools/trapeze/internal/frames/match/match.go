// Package match says which frames are meant, by a few fields of their headers.
package match

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/trapeze-nic/trapeze/internal/option"
)

// Help describes the fields in a few lines.
const Help = `--match takes fields with values, of which a frame must have all: proto=arp, ip, ip6, icmp,
icmp6, tcp or udp; host=ADDRESS and port=NUMBER of either end; mac=MAC of either station;
ether=TYPE, such as 0x88b5; vlan=ID; vi=NUMBER of either end of a Trapeze NIC's frame. Fields
are looked for behind VLAN tags; fragments of IP have no ports.`

// The EtherType of a Trapeze frame, and where the numbers of its endpoints stand in its header behind it (SPEC.md 8).
const typeTrapeze, atTo, atFrom, headerSize = 0x88b5, 6, 10, 50

// protocols are the values of proto.
var protocols = map[string]gopacket.LayerType{"arp": layers.LayerTypeARP, "ip": layers.LayerTypeIPv4, "ip6": layers.LayerTypeIPv6,
	"icmp": layers.LayerTypeICMPv4, "icmp6": layers.LayerTypeICMPv6, "tcp": layers.LayerTypeTCP, "udp": layers.LayerTypeUDP}

// Frames matches frames. One goroutine uses it at a time.
type Frames struct {
	tests  []func() bool
	parser *gopacket.DecodingLayerParser
	found  []gopacket.LayerType // of the frame that is looked at, whose headers follow
	eth    layers.Ethernet
	vlan   layers.Dot1Q
	arp    layers.ARP
	ip     layers.IPv4
	ip6    layers.IPv6
	tcp    layers.TCP
	udp    layers.UDP
}

// Parse reads fields, each as NAME=VALUE; none match every frame. Errors wrap option.ErrBad.
func Parse(fields []string) (*Frames, error) {
	m := &Frames{}
	m.parser = gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &m.eth, &m.vlan, &m.arp, &m.ip, &m.ip6,
		&layers.IPv6ExtensionSkipper{}, &layers.ICMPv4{}, &layers.ICMPv6{}, &m.tcp, &m.udp)
	m.parser.IgnoreUnsupported = true
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		test, allowed := m.test(name, value)
		if test == nil {
			return nil, &option.Error{Option: "--match", Value: f, Allowed: allowed}
		}
		m.tests = append(m.tests, test)
	}
	return m, nil
}

// Match reports whether a frame is meant, of which the end may be cut off. It allocates nothing.
func (m *Frames) Match(frame []byte) bool {
	if len(m.tests) == 0 {
		return true
	}
	_ = m.parser.DecodeLayers(frame, &m.found) // what stands before an error is there
	for _, test := range m.tests {
		if !test() {
			return false
		}
	}
	return true
}

func (m *Frames) has(l gopacket.LayerType) bool { return slices.Contains(m.found, l) }

// test returns what looks for a value of a field, nil for a bad one: then it says what is allowed.
func (m *Frames) test(name, value string) (func() bool, string) {
	switch name {
	case "proto":
		l, known := protocols[value]
		if known {
			return func() bool { return m.has(l) }, ""
		}
		return nil, "proto=arp, ip, ip6, icmp, icmp6, tcp or udp"
	case "host":
		a, err := netip.ParseAddr(value)
		if err == nil && a.Zone() == "" {
			return func() bool { return m.host(a.Unmap().AsSlice()) }, ""
		}
		return nil, "host= and an IP address"
	case "mac":
		a, err := net.ParseMAC(value)
		if err == nil && len(a) == 6 {
			return func() bool {
				return m.has(layers.LayerTypeEthernet) && (slices.Equal(a, m.eth.SrcMAC) || slices.Equal(a, m.eth.DstMAC))
			}, ""
		}
		return nil, "mac= and a MAC address"
	}
	bits, known := map[string]int{"port": 16, "ether": 16, "vlan": 12, "vi": 32}[name]
	if !known {
		return nil, "proto=, host=, port=, mac=, ether=, vlan= or vi= and a value"
	}
	v, err := strconv.ParseUint(value, 0, bits)
	if err != nil {
		return nil, fmt.Sprintf("%s= and a number up to %d", name, 1<<bits-1)
	}
	n := uint32(v)
	return func() bool {
		switch name {
		case "port":
			return m.has(layers.LayerTypeTCP) && (uint32(m.tcp.SrcPort) == n || uint32(m.tcp.DstPort) == n) ||
				m.has(layers.LayerTypeUDP) && (uint32(m.udp.SrcPort) == n || uint32(m.udp.DstPort) == n)
		case "ether":
			return m.kind() == n
		case "vlan":
			return m.has(layers.LayerTypeDot1Q) && uint32(m.vlan.VLANIdentifier) == n
		}
		p := m.eth.LayerPayload()
		return m.kind() == typeTrapeze && len(p) >= headerSize &&
			(binary.LittleEndian.Uint32(p[atTo:]) == n || binary.LittleEndian.Uint32(p[atFrom:]) == n)
	}, ""
}

// kind is the EtherType behind tags; 0 for a frame that is cut off before it.
func (m *Frames) kind() uint32 {
	switch {
	case m.has(layers.LayerTypeDot1Q):
		return uint32(m.vlan.Type)
	case m.has(layers.LayerTypeEthernet):
		return uint32(m.eth.EthernetType)
	}
	return 0
}

// host reports whether an address is one of either end.
func (m *Frames) host(a []byte) bool {
	return m.has(layers.LayerTypeIPv4) && (slices.Equal(a, m.ip.SrcIP) || slices.Equal(a, m.ip.DstIP)) ||
		m.has(layers.LayerTypeIPv6) && (slices.Equal(a, m.ip6.SrcIP) || slices.Equal(a, m.ip6.DstIP)) ||
		m.has(layers.LayerTypeARP) && (slices.Equal(a, m.arp.SourceProtAddress) || slices.Equal(a, m.arp.DstProtAddress))
}
