package images_test

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// slotSize is that of the emulated NIC.
const slotSize = 256 << 10

func build(t testing.TB, name string) *firmware.Spec {
	t.Helper()
	return must.Get(firmware.BuildShipped(name))(t)
}

// run starts an image as the NIC does.
func run(t testing.TB, spec *firmware.Spec) *machine.Image {
	t.Helper()
	slot := make([]byte, slotSize)
	copy(slot, spec.Link())
	img, err := machine.Boot(slot, 0x12347250, func() uint64 { return 0 })
	must.Hold(t, err == nil, "%v", err)
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
	from, to := p.from, p.to
	if p.protocol != 6 && p.protocol != 17 || p.fragment {
		from, to = netip.AddrPortFrom(from.Addr(), 0), netip.AddrPortFrom(to.Addr(), 0)
	}
	return firmware.FlowKey(from, to, p.protocol)
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
	v := must.Get(img.Programs[abi.FilterRx].Filter(frame, 0))(t)
	return v.Action
}

func TestAccessList(t *testing.T) { eachBuild(t, "acl", testAccessList) }

func testAccessList(t *testing.T, img *machine.Image) {
	rules := mapOf(t, img, "rules")
	drop, pass := firmware.Rule{Action: firmware.FilterDrop}.Bytes(), firmware.Rule{Action: firmware.FilterPass}.Bytes()
	for i, p := range flows() {
		for j, other := range flows() {
			must.Be(t, filter(t, img, other.frame()), abi.FilterPass, "without a rule, packet %d: action", j)
		}
		must.OK(t, rules.Update(p.key(), drop, machine.Any))
		for j, other := range flows() {
			want := uint8(abi.FilterPass)
			if i == j {
				want = abi.FilterDrop
			}
			should.Be(t, filter(t, img, other.frame()), want, "rule for packet %d, packet %d: action", i, j)
		}
		value, err := rules.Lookup(p.key())
		should.Hold(t, err == nil && binary.LittleEndian.Uint64(value[8:]) == 1, "hits of the rule for packet %d: %x, %v", i, value, err)
		must.OK(t, rules.Update(p.key(), pass, machine.Any))
		should.Be(t, filter(t, img, p.frame()), abi.FilterPass, "rule that lets packet %d pass: action", i)
		must.OK(t, rules.Delete(p.key()))
	}
	for i, frame := range strangers() {
		should.Be(t, filter(t, img, frame), abi.FilterPass, "stranger %d: action", i)
	}
}

func TestCount(t *testing.T) { eachBuild(t, "count", testCount) }

func testCount(t *testing.T, img *machine.Image) {
	counted := func(m string, key []byte) (frames, bytes uint64) {
		value := must.Get(mapOf(t, img, m).Lookup(key))(t)
		return binary.LittleEndian.Uint64(value), binary.LittleEndian.Uint64(value[8:])
	}
	for i, p := range flows() {
		frame := p.frame()
		for n := range uint64(i + 1) {
			must.Be(t, filter(t, img, frame), abi.FilterPass, "packet %d: action", i)
			frames, bytes := counted("flows", p.key())
			should.Hold(t, frames == n+1 && bytes == (n+1)*uint64(len(frame)), "packet %d: %d frames, %d bytes", i, frames, bytes)
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
	should.Give(img.Programs[abi.DemuxRx].Demultiplex(empty, 0))(t, byDefault, "before the table is filled")
	// Each entry is a queue of its own, so that the queue tells the entry.
	for i := range uint32(firmware.SteerQueues) {
		must.OK(t, queues.Update(binary.LittleEndian.AppendUint32(nil, i), binary.LittleEndian.AppendUint32(nil, 1000+i), machine.Any))
	}
	demultiplex := func(frame []byte) machine.Destination {
		return must.Get(img.Programs[abi.DemuxRx].Demultiplex(frame, 0))(t)
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
			want := machine.Destination{Queue: 1000 + hash%firmware.SteerQueues, Entry: abi.DemuxDefault}
			should.Be(t, demultiplex(flow(tt.from, tt.to, protocol).frame()), want, "%s to %s, protocol %d", tt.from, tt.to, protocol)
		}
	}
	for i, frame := range strangers() {
		should.Be(t, demultiplex(frame), byDefault, "stranger %d", i)
	}
}
