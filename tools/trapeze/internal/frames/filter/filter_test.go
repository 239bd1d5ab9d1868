package filter_test

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

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/filter"
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
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true}, parts...); err != nil {
		t.Fatal(err)
	}
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

// frames are the ones that expressions are tried on, by name.
func frames(t testing.TB) map[string][]byte {
	fragment := ip4(layers.IPProtocolUDP)
	fragment.FragOffset = 10
	udp := &layers.UDP{SrcPort: 1000, DstPort: 53}
	udp6 := build(t, eth(two, layers.EthernetTypeIPv6), ip6(layers.IPProtocolIPv6HopByHop))[:14+40]
	udp6 = append(udp6, 60, 0, 1, 4, 0, 0, 0, 0, 17, 0, 1, 4, 0, 0, 0, 0, 0x12, 0x34, 0, 53, 0, 8, 0, 0)
	binary.BigEndian.PutUint16(udp6[14+4:], 24)
	fragment6 := build(t, eth(two, layers.EthernetTypeIPv6), ip6(layers.IPProtocolIPv6Fragment))[:14+40]
	fragment6 = append(fragment6, 17, 0, 0, 8, 0, 0, 0, 1, 0, 53, 0, 53, 0, 8, 0, 0)
	return map[string][]byte{
		"tcp": build(t, eth(two, layers.EthernetTypeIPv4), ip4(layers.IPProtocolTCP), &layers.TCP{SrcPort: 1234, DstPort: 80}, gopacket.Payload("hello")),
		"udp": build(t, eth(two, layers.EthernetTypeIPv4), ip4(layers.IPProtocolUDP), udp),
		"vlan": build(t, eth(two, layers.EthernetTypeDot1Q), &layers.Dot1Q{VLANIdentifier: 7, Priority: 3, Type: layers.EthernetTypeIPv4},
			ip4(layers.IPProtocolUDP), udp),
		"qinq": build(t, eth(two, layers.EthernetTypeQinQ), &layers.Dot1Q{VLANIdentifier: 5, Type: layers.EthernetTypeDot1Q},
			&layers.Dot1Q{VLANIdentifier: 7, Type: layers.EthernetTypeIPv4}, ip4(layers.IPProtocolUDP), udp),
		"fragment": build(t, eth(two, layers.EthernetTypeIPv4), fragment, gopacket.Payload{0, 53, 0, 53}),
		"ping":     build(t, eth(two, layers.EthernetTypeIPv4), ip4(layers.IPProtocolICMPv4), &layers.ICMPv4{TypeCode: 0x800}),
		"arp": build(t, eth(all, layers.EthernetTypeARP), &layers.ARP{AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4,
			Operation: 1, SourceHwAddress: one, SourceProtAddress: net.IP{10, 1, 0, 1}, DstHwAddress: make([]byte, 6), DstProtAddress: net.IP{10, 2, 0, 2}}),
		"udp6":      udp6,
		"fragment6": fragment6,
		"raw":       append(build(t, eth(group, 0x88b6)), make([]byte, 100)...),
		"short":     {1, 2, 3},
		"empty":     nil,
	}
}

func TestMatch(t *testing.T) {
	all := frames(t)
	for _, c := range []struct{ expression, want string }{
		{"", "tcp udp vlan qinq fragment ping arp udp6 fragment6 raw short empty"},
		{"ip", "tcp udp vlan qinq fragment ping"},
		{"ip6", "udp6 fragment6"},
		{"IP or arp", "tcp udp vlan qinq fragment ping arp"},
		{"arp", "arp"},
		{"icmp", "ping"},
		{"icmp6", ""},
		{"tcp", "tcp"},
		{"udp", "udp vlan qinq fragment udp6 fragment6"},
		{"ip and udp", "udp vlan qinq fragment"},
		{"ip6 && udp", "udp6 fragment6"},
		{"ip proto 17", "udp vlan qinq fragment"},
		{"ip6 proto udp", "udp6 fragment6"},
		{"proto udp", "udp vlan qinq fragment udp6 fragment6"},
		{"proto 0x11", "udp vlan qinq fragment udp6 fragment6"},
		{"vlan", "vlan qinq"},
		{"vlan 7", "vlan qinq"},
		{"vlan 5 and udp", "qinq"},
		{"vlan 8", ""},
		{"not ( ip or arp ) and not ip6", "raw short empty"},
		{"!(ip||arp)&&! ip6", "raw short empty"},
		{"port 53", "udp vlan qinq udp6"},
		{"dst port 53", "udp vlan qinq udp6"},
		{"src port 53", ""},
		{"src or dst port 53", "udp vlan qinq udp6"},
		{"src and dst port 53", ""},
		{"udp port 80", ""},
		{"tcp port 80", "tcp"},
		{"tcp dst port 80 or udp src port 0x3e8", "tcp udp vlan qinq"},
		{"portrange 1000-1234", "tcp udp vlan qinq"},
		{"src portrange 1001-5000", "tcp udp6"},
		{"host 10.1.0.1", "tcp udp vlan qinq fragment ping arp"},
		{"src 10.1.0.1 and dst 10.2.0.2", "tcp udp vlan qinq fragment ping arp"},
		{"dst host 10.1.0.1", ""},
		{"10.2.0.2", "tcp udp vlan qinq fragment ping arp"},
		{"ip host 10.2.0.2", "tcp udp vlan qinq fragment ping"},
		{"arp host 10.2.0.2", "arp"},
		{"host fd00::1", "udp6 fragment6"},
		{"net 10.0.0.0/8", "tcp udp vlan qinq fragment ping arp"},
		{"src net 10.2.0.0/15", ""},
		{"dst net 10.2.0.0/15", "tcp udp vlan qinq fragment ping arp"},
		{"net 0.0.0.0/0", "tcp udp vlan qinq fragment ping arp"},
		{"dst net fd00:0:0:8000::/49", "udp6 fragment6"},
		{"src net fd00:0:0:8000::/49", ""},
		{"net ::/0", "tcp udp vlan qinq fragment ping arp udp6 fragment6"},
		{"ether 02:00:00:00:00:02", "tcp udp vlan qinq fragment ping udp6 fragment6"},
		{"ether src 02:00:00:00:00:01 and ether dst host ff:ff:ff:ff:ff:ff", "arp"},
		{"ether proto 0x88b6", "raw"},
		{"ether proto arp", "arp"},
		{"broadcast", "arp"},
		{"ether multicast", "arp raw"},
		{"multicast and not ether broadcast", "raw"},
		{"less 3", "short empty"},
		{"greater 114", "raw"},
		// And and or bind alike.
		{"arp or ip and tcp", "tcp"},
		{"arp or (ip and tcp)", "tcp arp"},
		{"not arp and tcp", "tcp"},
	} {
		f, err := filter.Parse(c.expression)
		if err != nil {
			t.Errorf("%q: %v", c.expression, err)
			continue
		}
		want := strings.Fields(c.want)
		for name, frame := range all {
			if got := f.Match(frame); got != slices.Contains(want, name) {
				t.Errorf("%q: %s: %t", c.expression, name, got)
			}
		}
	}
}

func TestSyntax(t *testing.T) {
	for _, c := range []struct {
		expression string
		offset     int
	}{
		{"tcp port", 8}, {"port http", 5}, {"port 65536", 5}, {"portrange 9-1", 10}, {"portrange 1", 10}, {"host example", 5}, {"host 10.0.0", 5},
		{"net 10.0.0.1/8", 4}, {"net 10.0.0.0", 4}, {"host fe80::1%eth0", 5}, {"ether 02:00", 6}, {"ether dst", 9}, {"ether proto 65536", 12},
		{"vlan 4096", 5}, {"proto 256", 6}, {"tcp and", 7}, {"and tcp", 0}, {"(tcp", 4}, {"tcp)", 3}, {"()", 1}, {"tcp udp", 4}, {"tcp[13]", 0},
		{"not", 3}, {"src or tcp", 7}, {"less", 4}, {"less -1", 5}, {"nonsense", 0}, {strings.Repeat("!", 100) + "tcp", 51},
		{strings.Repeat("(", 100), 51}, {"tcp | udp", 4}, {"\x00", 0}, {"tcp \xff", 4},
	} {
		_, err := filter.Parse(c.expression)
		var e *filter.SyntaxError
		if !errors.As(err, &e) || e.Offset != c.offset || e.Expression != c.expression || strings.Contains(err.Error(), "\x00") {
			t.Errorf("%q: %v", c.expression, err)
		}
	}
}

func TestMatchAllocates(t *testing.T) {
	f, err := filter.Parse("vlan 7 and (net 10.0.0.0/8 or ether 02:00:00:00:00:09) and udp src or dst port 53")
	if err != nil {
		t.Fatal(err)
	}
	frame := frames(t)["qinq"]
	if n := testing.AllocsPerRun(100, func() {
		if !f.Match(frame) {
			t.Error("no match")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzFilter: no expression and no frame lead out of the frame, and of what can be read
// the negation means the opposite.
func FuzzFilter(f *testing.F) {
	for _, frame := range frames(f) {
		f.Add("(ip or ip6) and not vlan 7 and src net 10.0.0.0/9", frame)
		f.Add("ether dst ff:ff:ff:ff:ff:ff || tcp portrange 1-1024 || less 60", frame)
		f.Add("!(udp port 53)", frame)
	}
	f.Fuzz(func(t *testing.T, expression string, frame []byte) {
		if len(expression) > 4096 {
			return
		}
		one, err := filter.Parse(expression)
		if err != nil {
			var e *filter.SyntaxError
			if !errors.As(err, &e) || e.Offset < 0 || e.Offset > len(expression) || err.Error() == "" {
				t.Fatalf("%#v", err)
			}
			return
		}
		match := one.Match(frame)
		if strings.TrimSpace(expression) == "" {
			return
		}
		other, err := filter.Parse("not (" + expression + ")")
		if err != nil {
			return // one level of nesting more than can be
		}
		if other.Match(frame) == match {
			t.Fatalf("%q and its negation both are %t", expression, match)
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	f, err := filter.Parse("ip and udp and net 10.0.0.0/8 and port 53")
	if err != nil {
		b.Fatal(err)
	}
	frame := frames(b)["udp"]
	b.ReportAllocs()
	for b.Loop() {
		if !f.Match(frame) {
			b.Fatal("no match")
		}
	}
}

// TestVIs: frames of a Trapeze NIC by the endpoints that they come from and go to.
func TestVIs(t *testing.T) {
	frame := make([]byte, 80+datasheet.HeaderSize)
	h := datasheet.HeaderAt(frame)
	for ; h == nil; h = datasheet.HeaderAt(frame) {
		frame = frame[1:] // to where a header is aligned
	}
	frame = frame[:80]
	h.EtherType, h.SourceEndpoint, h.DestinationEndpoint = datasheet.EtherType, 3, 70_000
	for expression, want := range map[string]bool{"vi 3": true, "src vi 3": true, "dst vi 3": false, "vi 0": false, "not vi 3": false, "greater 900": true, "less 900": false} {
		f, err := filter.Parse(expression)
		if err != nil {
			t.Fatal(err)
		}
		if f.MatchCut(frame, 1000) != want {
			t.Errorf("%s: want %v", expression, want)
		}
		if cut := strings.HasPrefix(expression, "not"); f.MatchCut(frame[:63], 63) != (cut || strings.HasPrefix(expression, "less")) {
			t.Errorf("%s of a header that was cut", expression)
		}
	}
}
