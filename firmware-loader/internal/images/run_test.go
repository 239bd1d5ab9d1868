package images_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/images"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// slotSize is that of the emulated NIC.
const slotSize = 256 << 10

// boot makes an image run as the NIC does.
func boot(t testing.TB, name string) *machine.Image {
	t.Helper()
	spec, err := firmware.BuildShipped(name)
	if err != nil {
		t.Fatal(err)
	}
	return run(t, spec)
}

// run starts an image as the NIC does.
func run(t testing.TB, spec *firmware.Spec) *machine.Image {
	t.Helper()
	slot := make([]byte, slotSize)
	copy(slot, spec.Link())
	img, err := machine.Boot(slot, 0x12347250, func() uint64 { return 0 })
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// packet describes a frame of a flow.
type packet struct {
	from, to netip.AddrPort
	protocol byte
	fragment bool // not the first one
	options  int  // words of IPv4 options
	payload  int
}

func (p packet) frame() []byte {
	b := make([]byte, 14, 2000)
	if p.from.Addr().Is4() {
		binary.BigEndian.PutUint16(b[12:], 0x0800)
		ip := make([]byte, 20+4*p.options)
		ip[0] = 0x45 + byte(p.options)
		if p.fragment {
			ip[7] = 1
		}
		ip[9] = p.protocol
		copy(ip[12:], p.from.Addr().AsSlice())
		copy(ip[16:], p.to.Addr().AsSlice())
		b = append(b, ip...)
	} else {
		binary.BigEndian.PutUint16(b[12:], 0x86dd)
		ip := make([]byte, 40)
		ip[0], ip[6] = 0x60, p.protocol
		copy(ip[8:], p.from.Addr().AsSlice())
		copy(ip[24:], p.to.Addr().AsSlice())
		b = append(b, ip...)
	}
	b = binary.BigEndian.AppendUint16(b, p.from.Port())
	b = binary.BigEndian.AppendUint16(b, p.to.Port())
	return append(b, make([]byte, p.payload)...)
}

// key is the packet's key in the maps of acl and count.
func (p packet) key() []byte {
	b := make([]byte, images.FlowKeySize)
	from, to := p.from.Addr().As16(), p.to.Addr().As16()
	copy(b[images.FlowSource:], from[:])
	copy(b[images.FlowDestination:], to[:])
	if (p.protocol == 6 || p.protocol == 17) && !p.fragment {
		binary.BigEndian.PutUint16(b[images.FlowSourcePort:], p.from.Port())
		binary.BigEndian.PutUint16(b[images.FlowDestinationPort:], p.to.Port())
	}
	b[images.FlowProtocol] = p.protocol
	return b
}

func flow(from, to string, protocol byte) packet {
	return packet{from: netip.MustParseAddrPort(from), to: netip.MustParseAddrPort(to), protocol: protocol, payload: 20}
}

// flows are packets that must not be taken for each other.
func flows() []packet {
	all := []packet{
		flow("10.0.0.1:1000", "10.0.0.2:2000", 6), flow("10.0.0.1:1000", "10.0.0.2:2000", 17), flow("10.0.0.2:2000", "10.0.0.1:1000", 6),
		flow("10.0.0.1:1001", "10.0.0.2:2000", 6), flow("10.0.0.1:1000", "10.0.0.2:2001", 6), flow("10.0.0.1:0", "10.0.0.2:0", 1),
		flow("[2001:db8::1]:1000", "[2001:db8::2]:2000", 6), flow("[2001:db8::1]:1000", "[2001:db8::2]:2000", 17), flow("[2001:db8::1]:0", "[2001:db8::2]:0", 58),
	}
	fragment := flow("10.0.0.1:1000", "10.0.0.3:2000", 17)
	fragment.fragment = true
	options := flow("10.0.0.1:1000", "10.0.0.4:2000", 17)
	options.options = 10
	return append(all, fragment, options)
}

// strangers are frames of no flow.
func strangers() [][]byte {
	arp := make([]byte, 60)
	arp[12], arp[13] = 8, 6
	short := flow("10.0.0.1:1000", "10.0.0.2:2000", 6).frame()[:30]
	version := flow("10.0.0.1:1000", "10.0.0.2:2000", 6).frame()
	version[14] = 0x55
	header := flow("10.0.0.1:1000", "10.0.0.2:2000", 6).frame()
	header[14] = 0x44
	return [][]byte{{}, make([]byte, 13), make([]byte, 14), arp, short, version, header}
}

func filter(t *testing.T, img *machine.Image, frame []byte) uint8 {
	t.Helper()
	v, err := img.Programs[abi.FilterRx].Filter(frame, 0)
	if err != nil {
		t.Fatal(err)
	}
	return v.Action
}

func TestAccessList(t *testing.T) { eachBuild(t, "acl", testAccessList) }

func testAccessList(t *testing.T, img *machine.Image) {
	rules := mapOf(t, img, "rules")
	drop, pass := make([]byte, images.RuleValueSize), make([]byte, images.RuleValueSize)
	drop[images.RuleAction], pass[images.RuleAction] = abi.FilterDrop, abi.FilterPass
	for i, p := range flows() {
		for j, other := range flows() {
			if got := filter(t, img, other.frame()); got != abi.FilterPass {
				t.Fatalf("without a rule, packet %d: action %d", j, got)
			}
		}
		if err := rules.Update(p.key(), drop, machine.Any); err != nil {
			t.Fatal(err)
		}
		for j, other := range flows() {
			want := uint8(abi.FilterPass)
			if i == j {
				want = abi.FilterDrop
			}
			if got := filter(t, img, other.frame()); got != want {
				t.Errorf("rule for packet %d, packet %d: action %d, want %d", i, j, got, want)
			}
		}
		value, err := rules.Lookup(p.key())
		if err != nil || binary.LittleEndian.Uint64(value[images.RuleHits:]) != 1 {
			t.Errorf("hits of the rule for packet %d: %x, %v", i, value, err)
		}
		if err := rules.Update(p.key(), pass, machine.Any); err != nil {
			t.Fatal(err)
		}
		if got := filter(t, img, p.frame()); got != abi.FilterPass {
			t.Errorf("rule that lets packet %d pass: action %d", i, got)
		}
		if err := rules.Delete(p.key()); err != nil {
			t.Fatal(err)
		}
	}
	for i, frame := range strangers() {
		if got := filter(t, img, frame); got != abi.FilterPass {
			t.Errorf("stranger %d: action %d", i, got)
		}
	}
}

func TestCount(t *testing.T) { eachBuild(t, "count", testCount) }

func testCount(t *testing.T, img *machine.Image) {
	counted := func(m string, key []byte) (frames, bytes uint64) {
		value, err := mapOf(t, img, m).Lookup(key)
		if err != nil {
			t.Fatal(err)
		}
		return binary.LittleEndian.Uint64(value[images.CountFrames:]), binary.LittleEndian.Uint64(value[images.CountBytes:])
	}
	for i, p := range flows() {
		frame := p.frame()
		for n := range uint64(i + 1) {
			if got := filter(t, img, frame); got != abi.FilterPass {
				t.Fatalf("packet %d: action %d", i, got)
			}
			if frames, bytes := counted("flows", p.key()); frames != n+1 || bytes != (n+1)*uint64(len(frame)) {
				t.Errorf("packet %d: %d frames, %d bytes", i, frames, bytes)
			}
		}
	}
	total := uint64(0)
	for i, frame := range strangers() {
		filter(t, img, frame)
		total += uint64(len(frame))
		if frames, bytes := counted("rest", make([]byte, 4)); frames != uint64(i+1) || bytes != total {
			t.Errorf("after %d strangers: %d frames, %d bytes", i+1, frames, bytes)
		}
	}
	// More flows than there is room for are counted together.
	room := int(mapOf(t, img, "flows").Spec().Entries) - len(flows())
	for i := range room + 10 {
		p := flow("10.1.0.1:1", "10.2.0.1:1", 6)
		p.from = netip.AddrPortFrom(p.from.Addr(), uint16(i))
		filter(t, img, p.frame())
	}
	if frames, _ := counted("rest", make([]byte, 4)); frames != uint64(len(strangers())+10) {
		t.Errorf("%d frames were of no flow, want %d", frames, len(strangers())+10)
	}
}

func TestFlowSteer(t *testing.T) { eachBuild(t, "flow-steer", testFlowSteer) }

func testFlowSteer(t *testing.T, img *machine.Image) {
	queues := mapOf(t, img, "queues")
	byDefault := machine.Destination{Queue: abi.DemuxDefault, Entry: abi.DemuxDefault}
	empty := flow("66.9.149.187:2794", "161.142.100.80:1766", 6).frame()
	if got, err := img.Programs[abi.DemuxRx].Demultiplex(empty, 0); err != nil || got != byDefault {
		t.Errorf("before the table is filled: %+v, %v", got, err)
	}
	// Each entry is a queue of its own, so that the queue tells the entry.
	for i := range uint32(images.Queues) {
		if err := queues.Update(binary.LittleEndian.AppendUint32(nil, i), binary.LittleEndian.AppendUint32(nil, 1000+i), machine.Any); err != nil {
			t.Fatal(err)
		}
	}
	demultiplex := func(frame []byte) machine.Destination {
		d, err := img.Programs[abi.DemuxRx].Demultiplex(frame, 0)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	// Microsoft, "Verifying the RSS Hash Calculation": source, destination, hash of
	// the addresses, hash with the ports.
	for _, tt := range []struct {
		from, to         string
		addresses, ports uint32
	}{
		{"66.9.149.187:2794", "161.142.100.80:1766", 0x323e8fc2, 0x51ccc178},
		{"199.92.111.2:14230", "65.69.140.83:4739", 0xd718262a, 0xc626b0ea},
		{"24.19.198.95:12898", "12.22.207.184:38024", 0xd2d0a5de, 0x5c2b394a},
		{"38.27.205.30:48228", "209.142.163.6:2217", 0x82989176, 0xafc7327f},
		{"153.39.163.191:44251", "202.188.127.2:1303", 0x5d1809c5, 0x10e828a2},
		{"[3ffe:2501:200:1fff::7]:2794", "[3ffe:2501:200:3::1]:1766", 0x2cc18cd5, 0x40207d3d},
		{"[3ffe:501:8::260:97ff:fe40:efab]:14230", "[ff02::1]:4739", 0x0f0c461c, 0xdde51bbf},
		{"[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251", "[fe80::200:f8ff:fe21:67cf]:38024", 0x4b61e985, 0x02d1feef},
	} {
		for protocol, hash := range map[byte]uint32{6: tt.ports, 17: tt.ports, 1: tt.addresses} {
			want := machine.Destination{Queue: 1000 + hash%images.Queues, Entry: abi.DemuxDefault}
			if got := demultiplex(flow(tt.from, tt.to, protocol).frame()); got != want {
				t.Errorf("%s to %s, protocol %d: %+v, want %+v", tt.from, tt.to, protocol, got, want)
			}
		}
	}
	for i, frame := range strangers() {
		if got := demultiplex(frame); got != byDefault {
			t.Errorf("stranger %d: %+v", i, got)
		}
	}
}
