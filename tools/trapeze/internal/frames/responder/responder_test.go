package responder_test

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/responder"
)

var (
	ours      = ethernet.MAC{2, 0, 0, 0, 0, 1}
	theirs    = ethernet.MAC{2, 0, 0, 0, 0, 2}
	broadcast = ethernet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	groups6   = ethernet.MAC{0x33, 0x33, 0xff, 0, 0, 1}

	our4, their4 = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
)

func newResponder() *responder.Responder {
	return responder.New(ours, []netip.Addr{our4})
}

// build makes a frame with right lengths and checksums, padded as a device pads it.
func build(t testing.TB, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	must.OK(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...))
	frame := bytes.Clone(b.Bytes())
	return append(frame, make([]byte, max(0, ethernet.MinFrame-len(frame)))...)
}

func hardware(m ethernet.MAC) net.HardwareAddr { return m[:] }

func eth(to ethernet.MAC, kind layers.EthernetType) *layers.Ethernet {
	return &layers.Ethernet{SrcMAC: hardware(theirs), DstMAC: hardware(to), EthernetType: kind}
}

func arp(to ethernet.MAC, change func(*layers.ARP)) func(testing.TB) []byte {
	return func(t testing.TB) []byte {
		a := &layers.ARP{AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: layers.ARPRequest,
			SourceHwAddress: theirs[:], SourceProtAddress: their4.AsSlice(), DstHwAddress: make([]byte, 6), DstProtAddress: our4.AsSlice()}
		change(a)
		return build(t, eth(to, layers.EthernetTypeARP), a)
	}
}

func ping(size int, change func(*layers.Ethernet, *layers.IPv4, *layers.ICMPv4)) func(testing.TB) []byte {
	return func(t testing.TB) []byte {
		e := eth(ours, layers.EthernetTypeIPv4)
		ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 3, Id: 7, Protocol: layers.IPProtocolICMPv4, SrcIP: their4.AsSlice(), DstIP: our4.AsSlice()}
		icmp := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 9, Seq: 11}
		change(e, ip, icmp)
		return build(t, e, ip, icmp, payload(size))
	}
}

func payload(n int) gopacket.Payload {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + n)
	}
	return b
}

// damage changes a byte of a frame after its checksums were computed.
func damage(frame func(testing.TB) []byte, at int) func(testing.TB) []byte {
	return func(t testing.TB) []byte {
		b := frame(t)
		b[at] ^= 0x40
		return b
	}
}

// cut takes bytes off the end of a frame.
func cut(frame func(testing.TB) []byte, to int) func(testing.TB) []byte {
	return func(t testing.TB) []byte { return frame(t)[:to] }
}

// tagged puts VLAN tags into a frame.
func tagged(frame func(testing.TB) []byte, tags ...byte) func(testing.TB) []byte {
	return func(t testing.TB) []byte {
		return slices.Insert(frame(t), 12, tags...)
	}
}

func same(*layers.Ethernet, *layers.IPv4, *layers.ICMPv4) {}

var cases = []struct {
	name  string
	frame func(testing.TB) []byte
	want  responder.Verdict
}{
	{"arp", arp(broadcast, func(*layers.ARP) {}), responder.ARP},
	{"arp to us alone", arp(ours, func(*layers.ARP) {}), responder.ARP},
	{"arp of somebody without an address", arp(broadcast, func(a *layers.ARP) { a.SourceProtAddress = make([]byte, 4) }), responder.ARP},
	{"arp in a VLAN", tagged(arp(broadcast, func(*layers.ARP) {}), 0x81, 0, 0, 7), responder.ARP},
	{"arp to a group", arp(groups6, func(*layers.ARP) {}), responder.Other},
	{"arp to another", arp(theirs, func(*layers.ARP) {}), responder.Other},
	{"arp for another", arp(broadcast, func(a *layers.ARP) { a.DstProtAddress = their4.AsSlice() }), responder.Other},
	{"arp reply", arp(ours, func(a *layers.ARP) { a.Operation = layers.ARPReply }), responder.Other},
	{"our address announced", arp(broadcast, func(a *layers.ARP) { a.SourceProtAddress = our4.AsSlice() }), responder.Invalid},
	{"arp about another station", arp(broadcast, func(a *layers.ARP) { a.SourceHwAddress = []byte{2, 0, 0, 0, 0, 3} }), responder.Invalid},
	{"arp of another hardware", arp(broadcast, func(a *layers.ARP) { a.AddrType = 6 }), responder.Invalid},
	{"short arp", cut(arp(broadcast, func(*layers.ARP) {}), 41), responder.Invalid},

	{"ping", ping(56, same), responder.Echo},
	{"ping without payload", ping(0, same), responder.Echo},
	{"ping of zeros", ping(0, func(_ *layers.Ethernet, _ *layers.IPv4, i *layers.ICMPv4) { i.Id, i.Seq = 0, 0 }), responder.Echo},
	{"ping of odd size", ping(1001, same), responder.Echo},
	{"largest ping", ping(1472, same), responder.Echo},
	{"ping in a jumbo frame", ping(8972, same), responder.Echo},
	{"ping in two VLANs", tagged(ping(56, same), 0x88, 0xa8, 0, 5, 0x81, 0, 0x20, 7), responder.Echo},
	{"ping in three VLANs", tagged(ping(56, same), 0x88, 0xa8, 0, 5, 0x81, 0, 0, 7, 0x81, 0, 0, 8), responder.Other},
	{"broadcast ping", ping(56, func(e *layers.Ethernet, _ *layers.IPv4, _ *layers.ICMPv4) { e.DstMAC = hardware(broadcast) }), responder.Other},
	{"ping of a broadcast address", ping(56, func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.DstIP = net.IPv4bcast.To4() }), responder.Other},
	{"ping to another station", ping(56, func(e *layers.Ethernet, _ *layers.IPv4, _ *layers.ICMPv4) { e.DstMAC = hardware(theirs) }), responder.Other},
	{"ping from a group", ping(56, func(e *layers.Ethernet, _ *layers.IPv4, _ *layers.ICMPv4) { e.SrcMAC = hardware(broadcast) }), responder.Other},
	{"ping from ourselves", ping(56, func(e *layers.Ethernet, _ *layers.IPv4, _ *layers.ICMPv4) { e.SrcMAC = hardware(ours) }), responder.Other},
	{"ping from our address", ping(56, func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.SrcIP = our4.AsSlice() }), responder.Invalid},
	{"ping from everybody", ping(56, func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.SrcIP = net.IPv4bcast.To4() }), responder.Invalid},
	{"ping from nobody", ping(56, func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.SrcIP = net.IPv4zero.To4() }), responder.Invalid},
	{"ping for another", ping(56, func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.DstIP = net.IPv4(10, 0, 0, 9).To4() }), responder.Other},
	{"echo reply", ping(56, func(_ *layers.Ethernet, _ *layers.IPv4, i *layers.ICMPv4) {
		i.TypeCode = layers.CreateICMPv4TypeCode(0, 0)
	}), responder.Other},
	{"code of a ping", ping(56, func(_ *layers.Ethernet, _ *layers.IPv4, i *layers.ICMPv4) {
		i.TypeCode = layers.CreateICMPv4TypeCode(8, 1)
	}), responder.Other},
	{"first fragment", ping(56, func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.Flags = layers.IPv4MoreFragments }), responder.Other},
	{"last fragment", ping(56, func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.FragOffset = 9 }), responder.Other},
	{"not to be fragmented", ping(56, func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) { ip.Flags = layers.IPv4DontFragment }), responder.Echo},
	{"options", ping(56, func(_ *layers.Ethernet, ip *layers.IPv4, _ *layers.ICMPv4) {
		ip.Options = []layers.IPv4Option{{OptionType: 7, OptionLength: 7, OptionData: make([]byte, 5)}}
	}), responder.Other},
	{"wrong header checksum", damage(ping(56, same), 14+8), responder.Invalid},
	{"wrong ICMP checksum", damage(ping(56, same), 14+20+8+9), responder.Invalid},
	{"version 6 in IPv4", damage(ping(56, same), 14), responder.Invalid},
	{"longer than the frame", cut(ping(56, same), 97), responder.Invalid},
	{"no more than headers", cut(ping(56, same), 33), responder.Other},

	{"nothing", func(testing.TB) []byte { return nil }, responder.Other},
	{"a header", func(testing.TB) []byte { return make([]byte, 14) }, responder.Other},
	{"a tag and no more", func(testing.TB) []byte {
		return append(append(append([]byte{}, ours[:]...), theirs[:]...), 0x81, 0, 0, 7)[:16]
	}, responder.Other},
}

func TestAnswer(t *testing.T) {
	r := newResponder()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			request := c.frame(t)
			frame := bytes.Clone(request)
			n, v := r.Answer(frame)
			must.Be(t, v, c.want)
			checkAnswer(t, request, frame, n, v)
		})
	}
}

// checkAnswer looks at an answer as its receiver would, with the decoders of gopacket.
func checkAnswer(t *testing.T, request, frame []byte, n int, v responder.Verdict) {
	t.Helper()
	answered := v != responder.Other && v != responder.Invalid
	must.Hold(t, answered == (n > 0) && n <= len(request), "%v: an answer of %d bytes to %d", v, n, len(request))
	if !answered {
		must.Same(t, frame, request, "a frame without an answer was changed")
		return
	}
	must.Same(t, frame[n:], request[n:], "bytes behind the answer were changed")
	options := gopacket.DecodeOptions{NoCopy: true}
	was := gopacket.NewPacket(request, layers.LayerTypeEthernet, options)
	is := gopacket.NewPacket(frame[:n], layers.LayerTypeEthernet, options)
	if e := is.ErrorLayer(); e != nil {
		t.Fatalf("the answer cannot be decoded: %v", e.Error())
	}
	if e := is.LinkLayer().(*layers.Ethernet); !bytes.Equal(e.DstMAC, request[6:12]) || !bytes.Equal(e.SrcMAC, ours[:]) {
		t.Fatalf("it goes from %v to %v", e.SrcMAC, e.DstMAC)
	}
	err, bad := is.VerifyChecksums()
	must.Hold(t, err == nil && len(bad) == 0, "checksums: %v, %v", bad, err)
	if a, b := len(was.Layers()), len(is.Layers()); v != responder.ARP && a != b {
		t.Fatalf("%d layers, the request has %d", b, a)
	}
	switch v {
	case responder.ARP:
		a, q := is.Layer(layers.LayerTypeARP).(*layers.ARP), was.Layer(layers.LayerTypeARP).(*layers.ARP)
		must.Hold(t, a.Operation == layers.ARPReply && bytes.Equal(a.SourceHwAddress, ours[:]) && bytes.Equal(a.SourceProtAddress, our4.AsSlice()) &&
			bytes.Equal(a.DstHwAddress, q.SourceHwAddress) && bytes.Equal(a.DstProtAddress, q.SourceProtAddress), "%+v", a)
	case responder.Echo:
		a, q := is.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4), was.Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		ip, asked := is.NetworkLayer().(*layers.IPv4), was.NetworkLayer().(*layers.IPv4)
		must.Hold(t, a.TypeCode.Type() == 0 && a.Id == q.Id && a.Seq == q.Seq && bytes.Equal(a.Payload, q.Payload) &&
			ip.SrcIP.Equal(asked.DstIP) && ip.DstIP.Equal(asked.SrcIP) && ip.TTL == 64 && ip.Length == asked.Length, "%+v %+v", ip, a)
	}
}

func TestAnswerAllocates(t *testing.T) {
	r, request := newResponder(), ping(56, same)(t)
	frame := bytes.Clone(request)
	should.Be(t, testing.AllocsPerRun(100, func() { copy(frame, request); r.Answer(frame) }), 0, "allocations")
}

func FuzzAnswer(f *testing.F) {
	for _, c := range cases {
		if b := c.frame(f); len(b) <= 200 {
			f.Add(b)
		}
	}
	r := newResponder()
	f.Fuzz(func(t *testing.T, request []byte) {
		frame := bytes.Clone(request)
		n, v := r.Answer(frame)
		checkAnswer(t, request, frame, n, v)
	})
}
