package framescmd_test

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
)

type echoReport struct {
	Seconds float64
	Ports   []struct {
		Device         string
		ReceivedFrames uint64 `json:"received_frames"`
		SentFrames     uint64 `json:"sent_frames"`
		Counters       map[string]uint64
		Program        *struct {
			Name string
			Maps map[string][]struct{ Key, Value string }
		}
	}
	Answers                 map[string]uint64
	Invalid, Other, Dropped uint64
}

// who finds out by ARP who has an address.
func who(t testing.TB, p *peer, source, target string) ethernet.MAC {
	t.Helper()
	mac := p.MAC()
	answer := p.ask(t, build(t, &layers.Ethernet{SrcMAC: hardware(mac), DstMAC: layers.EthernetBroadcast, EthernetType: layers.EthernetTypeARP},
		&layers.ARP{AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 1,
			SourceHwAddress: mac[:], SourceProtAddress: net.ParseIP(source).To4(), DstHwAddress: make([]byte, 6), DstProtAddress: net.ParseIP(target).To4()}))
	a, ok := gopacket.NewPacket(answer, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeARP).(*layers.ARP)
	must.Hold(t, ok && a.Operation == 2 && net.IP(a.SourceProtAddress).Equal(net.ParseIP(target)), "%x is no answer to ARP", answer)
	p.found = true
	return ethernet.MAC(a.SourceHwAddress)
}

// TestEcho finds and pings the port, as Linux would, in and out of a VLAN.
func TestEcho(t *testing.T) {
	for _, options := range []string{"", "&engine=thread"} {
		for _, poll := range []string{"--poll=false", "--poll"} {
			address := newWire() + options
			p := newPeer(t, address)
			echo := start(t, "echo", "--device", address, "--ip", "10.0.0.1,10.0.0.3", poll)
			mac := who(t, p, "10.0.0.2", "10.0.0.3")
			sizes := []int{0, 1, 56, 1000, 1472}
			for i, size := range sizes {
				for _, vlan := range []uint16{0, 7} {
					request := ping(t, p.MAC(), mac, "10.0.0.2", "10.0.0.1", vlan, i, size)
					p.send(t, request)
					got := p.receive(t, timeout)
					at := len(request) - size - 8
					if len(got) != max(60, len(request)) || got[at] != 0 || !bytes.Equal(got[at+4:len(request)], request[at+4:]) ||
						vlan != 0 && !bytes.Equal(got[12:16], request[12:16]) {
						t.Fatalf("%d bytes, VLAN %d: %x is no reply to %x", size, vlan, got, request)
					}
				}
			}
			damaged := ping(t, p.MAC(), mac, "10.0.0.2", "10.0.0.1", 0, 1, 56)
			damaged[60]++
			p.send(t, damaged)
			p.send(t, ping(t, p.MAC(), mac, "10.0.0.2", "10.0.0.9", 0, 1, 56))
			last := ping(t, p.MAC(), mac, "10.0.0.2", "10.0.0.1", 0, 99, 56)
			if p.send(t, last); p.receive(t, timeout) == nil {
				t.Fatal("no answer")
			}
			echo.stop()
			var r echoReport
			echo.report(t, &r)
			want := uint64(2*len(sizes) + 1)
			should.Hold(t, r.Answers["echo"] == want && r.Answers["arp"] != 0 && r.Invalid == 1 && r.Other == 1 && r.Dropped == 0 &&
				r.Ports[0].Device == address && r.Ports[0].SentFrames == want+r.Answers["arp"] && r.Ports[0].ReceivedFrames == r.Ports[0].SentFrames+2, "%+v", r)
		}
	}
}

// TestEchoEnds: --count and --duration end the command, well. Opening the port takes a part of the
// duration, on a loaded machine most of it.
func TestEchoEnds(t *testing.T) {
	address := newWire()
	p := newPeer(t, address)
	echo := start(t, "echo", "--device", address, "--ip", "10.0.0.1", "--count", "1")
	who(t, p, "10.0.0.2", "10.0.0.1")
	var r echoReport
	if echo.report(t, &r); r.Answers["arp"] == 0 {
		t.Errorf("%+v", r)
	}
	r = echoReport{}
	if start(t, "echo", "--device", newWire(), "--ip", "10.0.0.1", "--duration", "300ms").report(t, &r); r.Seconds <= 0 || r.Answers["arp"] != 0 {
		t.Errorf("%+v", r)
	}
}

// TestEchoFiltered: a control program in the NIC drops what its rules name, before echo
// sees it.
func TestEchoFiltered(t *testing.T) {
	address := newWire()
	p := newPeer(t, address)
	key := firmware.FlowKey(netip.MustParseAddrPort("10.0.0.66:0"), netip.MustParseAddrPort("10.0.0.1:0"), 1)
	rule := firmware.Rule{Action: firmware.FilterDrop}
	echo := start(t, "echo", "--device", address, "--ip", "10.0.0.1", "--image", "acl", "--map", fmt.Sprintf("rules:%x=%x", key, rule.Bytes()), "--show-map", "rules")
	mac := who(t, p, "10.0.0.2", "10.0.0.1")
	for i := range 10 {
		p.send(t, ping(t, p.MAC(), mac, "10.0.0.66", "10.0.0.1", 0, i, 56))
	}
	p.send(t, ping(t, p.MAC(), mac, "10.0.0.2", "10.0.0.1", 0, 77, 56))
	got := p.receive(t, timeout)
	must.Hold(t, len(got) >= 60 && bytes.Equal(got[30:34], []byte{10, 0, 0, 2}), "%x", got)
	echo.stop()
	var r echoReport
	echo.report(t, &r)
	must.Hold(t, r.Answers["echo"] == 1 && r.Invalid+r.Other == 0 && r.Ports[0].Program != nil && r.Ports[0].Program.Name == "acl", "%+v", r)
	rule.Hits = 10
	rules := r.Ports[0].Program.Maps["rules"]
	should.Hold(t, len(rules) == 1 && rules[0].Value == fmt.Sprintf("%x", rule.Bytes()), "%+v", rules)
}
