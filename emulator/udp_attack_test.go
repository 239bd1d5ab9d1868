package emulator_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// udpHost makes a device on a UDP wire, whose connections send probes often.
func udpHost(t *testing.T, mac datasheet.MAC, o wire.UDPOptions) (*adminHost, *wire.UDP) {
	t.Helper()
	o.Local = "127.0.0.1:0"
	w := must.Get(wire.NewUDP(t.Context(), o))(t)
	timing := engine.DefaultTiming()
	timing.Probe = 20 * time.Millisecond
	d := must.Get(emulator.New(emulator.Options{Name: "emu:?" + mac.String(), Wire: w, MAC: mac, Timing: timing, Thread: true}))(t)
	return newAdminHost(t, d), w
}

// spy is a socket of a host that can send datagrams.
type spy struct{ conn *net.UDPConn }

func newSpy(t *testing.T) spy {
	t.Helper()
	conn := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	t.Cleanup(func() { conn.Close() })
	return spy{conn}
}

// claim sends an empty data frame that a station might have sent.
func (s spy) claim(t *testing.T, to netip.AddrPort, station, destination datasheet.MAC, endpoint uint32) {
	t.Helper()
	f := make([]byte, datasheet.HeaderSize)
	h := datasheet.HeaderAt(f)
	*h = datasheet.Header{Destination: destination, Source: station, EtherType: datasheet.EtherType,
		Version: datasheet.WireVersion, Type: datasheet.FrameData, Flags: datasheet.FrameChecksum,
		DestinationEndpoint: endpoint, SourceEndpoint: endpoint, Key: 0x12345678}
	h.Checksum = datasheet.FrameChecksumOf(f)
	if _, err := s.conn.WriteToUDPAddrPort(f, to); err != nil {
		t.Fatal(err)
	}
}

// TestUDPConnectionIsNotTakenOver: a host that can only send datagrams, and claims both stations'
// addresses, gets nothing, and the connection stands it. The client was given its peer, so claims from before it has
// heard of that do not count either.
func TestUDPConnectionIsNotTakenOver(t *testing.T) {
	checkFiles(t)
	clientMAC, serverMAC := datasheet.MAC{2, 0, 0, 0, 0, 1}, datasheet.MAC{2, 0, 0, 0, 0, 2}
	server, serverWire := udpHost(t, serverMAC, wire.UDPOptions{})
	client, clientWire := udpHost(t, clientMAC, wire.UDPOptions{Peers: []string{serverWire.LocalAddr().String()}})
	thief := newSpy(t)
	thief.claim(t, clientWire.LocalAddr(), serverMAC, clientMAC, 0)
	connect(t, client, server)
	for range 30 {
		for endpoint := range uint32(4) {
			thief.claim(t, serverWire.LocalAddr(), clientMAC, serverMAC, endpoint)
			thief.claim(t, clientWire.LocalAddr(), serverMAC, clientMAC, endpoint)
		}
		time.Sleep(10 * time.Millisecond)
	}
	waittest.Until(t, "all are counted", func() bool {
		return serverWire.Stats().Strangers >= 120 && clientWire.Stats().Strangers >= 121
	})
	for name, h := range map[string]*adminHost{"client": client, "server": server} {
		if e, ok := h.next(); ok {
			t.Errorf("the %s's connection did not stand it: %+v", name, e)
		}
	}
	must.OK(t, thief.conn.SetReadDeadline(time.Now().Add(10*time.Millisecond)))
	if _, from, err := thief.conn.ReadFromUDPAddrPort(make([]byte, 1)); err == nil {
		t.Errorf("a frame went to a stranger from %v", from)
	}
	if a, b := serverWire.Stats().Strangers, clientWire.Stats().Strangers; a != 120 || b != 121 {
		t.Errorf("%d and %d strange frames were counted", a, b)
	}
}
