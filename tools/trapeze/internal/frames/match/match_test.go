package match_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/match"
)

var (
	one   = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	two   = net.HardwareAddr{2, 0, 0, 0, 0, 2}
	all   = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	group = net.HardwareAddr{1, 0, 0x5e, 0, 0, 1}
)

func build(t testing.TB, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	must.OK(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, parts...))
	return bytes.Clone(b.Bytes())
}

func ip4(protocol layers.IPProtocol) *layers.IPv4 {
	return &layers.IPv4{Version: 4, IHL: 5, Protocol: protocol, SrcIP: net.IP{10, 1, 0, 1}, DstIP: net.IP{10, 2, 0, 2}}
}

func ip6(next layers.IPProtocol) *layers.IPv6 {
	return &layers.IPv6{Version: 6, NextHeader: next, SrcIP: net.ParseIP("fd00::1"), DstIP: net.ParseIP("fd00:0:0:8000::2")}
}

func eth(to net.HardwareAddr, kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: one, DstMAC: to, EthernetType: kind}
}

// trapeze is a frame from VI 3 to VI 70000.
func trapeze() []byte {
	b := make([]byte, 80+datasheet.HeaderSize)
	h := datasheet.HeaderAt(b)
	for ; h == nil; h = datasheet.HeaderAt(b) {
		b = b[1:] // to where a header is aligned
	}
	h.EtherType, h.SourceEndpoint, h.DestinationEndpoint = datasheet.EtherType, 3, 70_000
	return b[:80]
}

// frames are the ones that fields are looked for in, by name.
func frames(t testing.TB) map[string][]byte {
	fragment := ip4(layers.IPProtocolUDP)
	fragment.FragOffset = 10
	udp := &layers.UDP{SrcPort: 1000, DstPort: 53}
	udp6 := build(t, eth(two, layers.EthernetTypeIPv6), ip6(layers.IPProtocolIPv6HopByHop))[:14+40]
	udp6 = append(udp6, 60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 53, 0, 8, 0, 0)
	binary.BigEndian.PutUint16(udp6[14+4:], 24)
	tcp := build(t, eth(two, layers.EthernetTypeIPv4), ip4(layers.IPProtocolTCP), &layers.TCP{SrcPort: 1234, DstPort: 80}, gopacket.Payload("hello"))
	return map[string][]byte{
		"tcp": tcp,
		"cut": tcp[:14+20+20], // behind its headers
		"udp": build(t, eth(two, layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP), udp),
		"vlan": build(t, eth(two, layers.EthernetTypeDot1Q), &layers.Dot1Q{VLANIdentifier: 7, Priority: 3, Type: layers.EthernetTypeIPv4},
			ip4(layers.IPProtocolUDP), udp),
		"qinq": build(t, eth(two, layers.EthernetTypeQinQ), &layers.Dot1Q{VLANIdentifier: 5, Type: layers.EthernetTypeDot1Q},
			&layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv4}, ip4(layers.IPProtocolUDP), udp),
		"fragment": build(t, eth(two, layers.EthernetTypeIPv4), fragment, gopacket.Payload{0, 53, 0, 53}),
		"ping":     build(t, eth(two, layers.EthernetTypeIPv4), ip4(layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: 0x800}),
		"arp": build(t, eth(all, layers.EthernetTypeARP), &layers.ARP{AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: 1, SourceHwAddress: one, SourceProtAddress: net.IP{10, 1, 0, 1}, DstHwAddress: make([]byte, 6), DstProtAddress: net.IP{10, 2, 0, 2}}),
		"udp6":    udp6,
		"raw":     append(build(t, eth(group, 0x88b6)), make([]byte, 100)...),
		"trapeze": trapeze(),
		"no end":  trapeze()[:63],
		"short":   {1, 2, 3},
		"empty":   nil,
	}
}

func TestMatch(t *testing.T) {
	all := frames(t)
	for _, c := range []struct{ fields, want string }{
		{"", "tcp,cut,udp,vlan,qinq,fragment,ping,arp,udp6,raw,trapeze,no end,short,empty"},
		{"proto=ip", "tcp,cut,udp,vlan,qinq,fragment,ping"},
		{"proto=ip6", "udp6"},
		{"proto=arp", "arp"},
		{"proto=icmp", "ping"},
		{"proto=icmp6", ""},
		{"proto=tcp", "tcp,cut"},
		{"proto=udp", "udp,vlan,qinq,udp6"},
		{"proto=ip,proto=udp", "udp,vlan,qinq"},
		{"vlan=7", "vlan,qinq"},
		{"vlan=8", ""},
		{"port=53", "udp,vlan,qinq,udp6"},
		{"proto=udp,port=53,host=fd00::1", "udp6"},
		{"port=1234", "tcp,cut"},
		{"host=10.1.0.1", "tcp,cut,udp,vlan,qinq,fragment,ping,arp"},
		{"host=10.2.0.2,proto=arp", "arp"},
		{"host=::ffff:10.2.0.2,proto=arp", "arp"},
		{"host=fd00:0:0:8000::2", "udp6"},
		{"mac=02:00:00:00:00:02", "tcp,cut,udp,vlan,qinq,fragment,ping,udp6"},
		{"mac=ff:ff:ff:ff:ff:ff", "arp"},
		{"ether=0x88b6", "raw"},
		{"ether=0x0800,vlan=7", "vlan,qinq"},
		{"ether=0x88b5", "trapeze,no end"},
		{"vi=3", "trapeze"},
		{"vi=70000", "trapeze"},
		{"vi=0", ""},
	} {
		var fields []string
		if c.fields != "" {
			fields = strings.Split(c.fields, ",")
		}
		m, err := match.Parse(fields)
		if err != nil {
			t.Errorf("%q: %v", c.fields, err)
			continue
		}
		want := strings.Split(c.want, ",")
		for range 2 { // what one frame had is not found in the next
			for name, frame := range all {
				should.Be(t, m.Match(frame), slices.Contains(want, name), "%q: %s", c.fields, name)
			}
		}
	}
}

func TestBadFields(t *testing.T) {
	for _, f := range []string{"", "udp", "port", "port=http", "port=65536", "host=example", "host=10.0.0", "host=fe80::1%eth0", "mac=02:00",
		"ether=65536", "vlan=4096", "vi=-1", "proto=17", "proto", "\x00=\x00"} {
		_, err := match.Parse([]string{f})
		should.Hold(t, errors.Is(err, option.ErrBad) && !strings.Contains(err.Error(), "\x00"), "%q: %v", f, err)
	}
}

func TestMatchAllocates(t *testing.T) {
	m := must.Get(match.Parse([]string{"vlan=7", "proto=udp", "port=53", "host=10.1.0.1"}))(t)
	frame := frames(t)["qinq"]
	should.Be(t, testing.AllocsPerRun(100, func() {
		should.Hold(t, m.Match(frame), "no match")
	}), 0, "allocations")
}

// FuzzMatch: no frame leads out of the frame, and what is found in one is found again.
func FuzzMatch(f *testing.F) {
	for _, frame := range frames(f) {
		f.Add("port=53", frame)
		f.Add("vi=3", frame)
	}
	f.Fuzz(func(t *testing.T, field string, frame []byte) {
		m, err := match.Parse([]string{field})
		if err != nil {
			must.Hold(t, errors.Is(err, option.ErrBad), "%+v", err)
			return
		}
		got := m.Match(frame)
		m.Match(nil)
		must.Be(t, m.Match(frame), got, "%q: once, and not again", field)
	})
}
