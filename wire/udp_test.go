package wire_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

func newUDP(t testing.TB, o wire.UDPOptions) *wire.UDP {
	t.Helper()
	if o.Local == "" {
		o.Local = "127.0.0.1:0"
	}
	u := must.Get(wire.NewUDP(context.Background(), o))(t)
	t.Cleanup(func() { u.Close() })
	return u
}

// udpPair opens two ends, the first of which has the second as its peer.
func udpPair(t testing.TB, mtu int) (a, b *wire.UDP) {
	b = newUDP(t, wire.UDPOptions{MTU: mtu})
	return newUDP(t, wire.UDPOptions{MTU: mtu, Peers: []string{b.LocalAddr().String()}}), b
}

func TestUDPOptions(t *testing.T) {
	tests := []struct {
		name string
		o    wire.UDPOptions
	}{
		{"no port", wire.UDPOptions{Local: "127.0.0.1"}},
		{"bad port", wire.UDPOptions{Local: "127.0.0.1:99999"}},
		{"peer without port", wire.UDPOptions{Local: "127.0.0.1:0", Peers: []string{"127.0.0.1"}}},
		{"peer with port 0", wire.UDPOptions{Local: "127.0.0.1:0", Peers: []string{"127.0.0.1:0"}}},
		{"MTU too small", wire.UDPOptions{Local: "127.0.0.1:0", MTU: 1}},
		{"MTU too large", wire.UDPOptions{Local: "127.0.0.1:0", MTU: datasheet.MaxMTU + 1}},
	}
	before := leaktest.Files(t)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			should.Refuse(wire.NewUDP(context.Background(), tt.o))(t, wire.ErrOptions, "NewUDP")
		})
	}
	first := newUDP(t, wire.UDPOptions{})
	if _, err := wire.NewUDP(context.Background(), wire.UDPOptions{Local: first.LocalAddr().String()}); err == nil {
		t.Error("two wires at one port")
	}
	first.Close()
	should.Be(t, leaktest.Files(t), before, "file descriptors before, after")
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := wire.NewUDP(gone, wire.UDPOptions{Local: "localhost:0"}); err == nil {
		t.Error("a name was resolved after the context had ended")
	}
}

func TestUDPDefaultMTU(t *testing.T) {
	should.Be(t, newUDP(t, wire.UDPOptions{}).MTU(), wire.DefaultUDPMTU, "IPv4: MTU")
	u, err := wire.NewUDP(context.Background(), wire.UDPOptions{Local: "[::1]:0"})
	if err != nil {
		t.Skip("no IPv6 here: ", err)
	}
	defer u.Close()
	should.Be(t, u.MTU(), 1448, "IPv6: MTU")
	peer := must.Get(wire.NewUDP(context.Background(), wire.UDPOptions{Local: "[::1]:0", Peers: []string{u.LocalAddr().String()}}))(t)
	defer peer.Close()
	f := frameOf(stationMAC(2), stationMAC(1), 100)
	should.Same(t, carry(peer, u, f), f, "nothing arrives over IPv6")
}

func TestUDPLargestFrames(t *testing.T) {
	a, b := udpPair(t, datasheet.MaxMTU)
	f := frameOf(stationMAC(2), stationMAC(1), datasheet.MaxMTU-datasheet.HeaderSize)
	for range 300 { // several times around the ring
		must.Same(t, carry(a, b, f), f, "the largest frame does not arrive: %+v, %+v", a.Stats(), b.Stats())
	}
}

func TestUDPHearsLargerFramesThanItSends(t *testing.T) {
	b := newUDP(t, wire.UDPOptions{MTU: datasheet.MinMTU})
	a := newUDP(t, wire.UDPOptions{MTU: 9000, Peers: []string{b.LocalAddr().String()}})
	f := frameOf(stationMAC(2), stationMAC(1), 8000)
	should.Same(t, carry(a, b, f), f, "a frame larger than the receiver's MTU does not arrive")
}

func TestUDPLearnsAddresses(t *testing.T) {
	hub := newUDP(t, wire.UDPOptions{})
	to := []string{hub.LocalAddr().String()}
	one, two := newUDP(t, wire.UDPOptions{Peers: to}), newUDP(t, wire.UDPOptions{Peers: to})

	send(hub, frameOf(stationMAC(1), stationMAC(9), 0))
	should.Be(t, hub.Stats().Homeless != 1, false, "a frame for nobody: %+v", hub.Stats())
	send(one, frameOf(stationMAC(9), stationMAC(1), 0))
	send(two, frameOf(stationMAC(9), stationMAC(2), 0))
	for range 2 {
		must.Be(t, receive(hub) == nil, false, "frames do not arrive")
	}
	for n, u := range map[byte]*wire.UDP{1: one, 2: two} {
		f := frameOf(stationMAC(n), stationMAC(9), int(n))
		should.Same(t, carry(hub, u, f), f, "the answer to station %d does not arrive there", n)
	}
}

// TestUDPZones: link-local addresses keep their interface, by its name or its number.
func TestUDPZones(t *testing.T) {
	const name = "trapezezone"
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "trapezepeer"}
	if err := netlink.LinkAdd(link); errors.Is(err, unix.EPERM) || errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("an interface cannot be made: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	defer netlink.LinkDel(link)
	local := netip.MustParseAddr("fe80::7")
	must.OK(t, netlink.AddrAdd(link, &netlink.Addr{IPNet: &net.IPNet{IP: local.AsSlice(), Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD}))
	peer, err := netlink.LinkByName(link.PeerName)
	must.OK(t, errors.Join(err, netlink.LinkSetUp(link), netlink.LinkSetUp(peer)))
	i := must.Get(net.InterfaceByName(name))(t)
	for _, zone := range []string{name, strconv.Itoa(i.Index)} {
		at := netip.AddrPortFrom(local.WithZone(zone), 0).String()
		b := newUDP(t, wire.UDPOptions{Local: at})
		a := newUDP(t, wire.UDPOptions{Local: at, Peers: []string{netip.AddrPortFrom(local.WithZone(zone), b.LocalAddr().Port()).String()}})
		should.Be(t, b.LocalAddr().Addr(), local.WithZone(name), "it listens")
		exchange(t, a, b, frameOf(stationMAC(2), stationMAC(1), 3)) // the interface may need some time
		exchange(t, b, a, frameOf(stationMAC(1), stationMAC(2), 4))
	}
	if _, err := wire.NewUDP(t.Context(), wire.UDPOptions{Local: "[fe80::7%nosuchzone]:0"}); err == nil {
		t.Error("a zone that is not there")
	}
}

func TestUDPBroadcastGoesToAllPeers(t *testing.T) {
	one, two := newUDP(t, wire.UDPOptions{}), newUDP(t, wire.UDPOptions{})
	a := newUDP(t, wire.UDPOptions{Peers: []string{one.LocalAddr().String(), two.LocalAddr().String()}})
	f := frameOf(datasheet.Broadcast, stationMAC(1), 3)
	send(a, f)
	should.Be(t, bytes.Equal(receive(one), f) && bytes.Equal(receive(two), f), true, "a peer missed a broadcast")
	g := frameOf(stationMAC(7), stationMAC(1), 4)
	send(a, g)
	should.Hold(t, bytes.Equal(receive(one), g) && bytes.Equal(receive(two), g), "a peer missed a frame for a station that nobody has heard of")
}

func TestUDPIgnoresGarbage(t *testing.T) {
	u := newUDP(t, wire.UDPOptions{})
	conn := must.Get(net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(u.LocalAddr())))(t)
	defer conn.Close()
	for _, p := range []string{"", "short", "thirteen byte"} {
		must.Get(conn.Write([]byte(p)))(t)
	}
	// A whole Ethernet header is the engine's to judge, but teaches nothing if
	// it is of another protocol or from a group.
	other := frameOf(stationMAC(9), stationMAC(3), 0)
	other[12] = 8
	group := frameOf(stationMAC(9), datasheet.Broadcast, 0)
	for _, p := range [][]byte{other, group} {
		must.Get(conn.Write(p))(t)
		should.Same(t, receive(u), p, "received bytes")
	}
	should.Be(t, u.Stats().Runts, 3, "runts")
	send(u, frameOf(stationMAC(3), stationMAC(9), 0))
	should.Be(t, u.Stats().Homeless, 1, "homeless")
}

func TestUDPStatsSendErrors(t *testing.T) {
	// Linux sends nothing from the loopback address to another host (192.0.2.0
	// is for documentation, RFC 5737).
	u := newUDP(t, wire.UDPOptions{Peers: []string{"192.0.2.1:9"}})
	send(u, frameOf(stationMAC(2), stationMAC(1), 0))
	should.Be(t, u.Stats().SendErrors, 1, "send errors")
	should.Be(t, u.LinkUp(), true, "an error of one datagram took the link down")
}

func TestUDPSurvivesNobodyAtThePort(t *testing.T) {
	a, b := udpPair(t, 0)
	where := b.LocalAddr()
	b.Close()
	f := frameOf(stationMAC(2), stationMAC(1), 0)
	for range 3 {
		send(a, f)
		time.Sleep(time.Millisecond)
	}
	again := newUDP(t, wire.UDPOptions{Local: where.String()})
	should.Same(t, carry(a, again, f), f, "nothing arrives after the peer came back")
}

func TestUDPResolvesNames(t *testing.T) {
	u, err := wire.NewUDP(context.Background(), wire.UDPOptions{Local: "localhost:0"})
	if err != nil {
		t.Skip("localhost is not known here: ", err)
	}
	defer u.Close()
	should.Be(t, u.LocalAddr().Addr().IsLoopback(), true, "localhost is %v", u.LocalAddr())
	any := newUDP(t, wire.UDPOptions{Local: ":0"})
	should.Be(t, strings.HasPrefix(any.LocalAddr().String(), netip.IPv4Unspecified().String()), true, "no host is %v", any.LocalAddr())
}
