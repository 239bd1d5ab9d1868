package wire_test

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// timeout bounds waits for what should come soon.
const timeout = 20 * time.Second

// stranger is a socket of somebody who can send datagrams and sees those that are
// sent to it.
type stranger struct {
	t    *testing.T
	conn *net.UDPConn
}

func newStranger(t *testing.T) *stranger {
	t.Helper()
	conn := must.Get(net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	t.Cleanup(func() { conn.Close() })
	return &stranger{t, conn}
}

func (s *stranger) send(to netip.AddrPort, p []byte) {
	s.t.Helper()
	must.Get(s.conn.WriteToUDPAddrPort(p, to))(s.t)
}

// next returns the next datagram that comes within the time given, nil if none does.
func (s *stranger) next(within time.Duration) []byte {
	s.t.Helper()
	must.OK(s.t, s.conn.SetReadDeadline(time.Now().Add(within)))
	b := make([]byte, 1<<16)
	n, _, err := s.conn.ReadFromUDPAddrPort(b)
	if err != nil {
		return nil
	}
	return b[:n]
}

// TestUDPStationIsNotTakenOver: a stranger that sends frames with the address of a station has none of
// them delivered, and gets none of its frames: neither from an end that learned the address, nor from one that
// was given its peers.
func TestUDPStationIsNotTakenOver(t *testing.T) {
	hub := newUDP(t, wire.UDPOptions{})
	one := newUDP(t, wire.UDPOptions{Peers: []string{hub.LocalAddr().String()}})
	thief := newStranger(t)
	thief.send(one.LocalAddr(), frameOf(stationMAC(1), stationMAC(9), 1)) // before anything was heard of 9
	send(one, frameOf(stationMAC(9), stationMAC(1), 0))
	must.Be(t, receive(hub) == nil, false, "the first frame does not arrive")
	for i := range 20 {
		thief.send(hub.LocalAddr(), frameOf(stationMAC(9), stationMAC(1), 1))
		thief.send(one.LocalAddr(), frameOf(stationMAC(1), stationMAC(9), 1))
		f := frameOf(stationMAC(1), stationMAC(9), 2+i)
		must.Same(t, carry(hub, one, f), f, "frame %d does not arrive at the station", i)
		g := frameOf(stationMAC(9), stationMAC(1), 2+i)
		must.Same(t, carry(one, hub, g), g, "frame %d does not arrive from the station", i)
	}
	should.Be(t, thief.next(20*time.Millisecond) != nil, false, "a frame went to a stranger")
	if a, b := hub.Stats().Strangers, one.Stats().Strangers; a != 20 || b != 21 {
		t.Errorf("%d and %d strange frames were counted", a, b)
	}
}

// TestUDPStationMoves: with a key a station is where its last frame came from.
func TestUDPStationMoves(t *testing.T) {
	key := wireKey(t, "a")
	hub := newUDP(t, wire.UDPOptions{Key: key})
	for n := range uint64(3) {
		one := newUDP(t, wire.UDPOptions{Key: key, Peers: []string{hub.LocalAddr().String()}})
		exchange(t, one, hub, frameOf(stationMAC(9), stationMAC(1), int(n)))
		exchange(t, hub, one, frameOf(stationMAC(1), stationMAC(9), int(n)))
		should.Be(t, hub.Stats().Moves, n, "moves")
		one.Close()
		drain(hub)
	}
}

// TestStations: without a key a station stays at its first address until it has not been heard for a while,
// and however many stations strangers make up.
func TestStations(t *testing.T) {
	var s wire.Stations
	now := time.Unix(1e9, 0)
	home, thief := netip.MustParseAddrPort("10.0.0.1:1"), netip.MustParseAddrPort("10.0.0.2:2")
	at := func(want netip.AddrPort) {
		t.Helper()
		if got, ok := s.Find(stationMAC(1)); !ok || got != want {
			t.Errorf("the station is at %v, want %v", got, want)
		}
	}
	made := func(n int) datasheet.MAC { return datasheet.MAC{2, 7, 0, 0, byte(n >> 8), byte(n)} }
	for range 5 { // it is heard
		if !s.Hear(stationMAC(1), home, now, false) || s.Hear(stationMAC(1), thief, now.Add(wire.StationLife-1), false) {
			t.Error("a claim was taken")
		}
		at(home)
		now = now.Add(wire.StationLife - 1)
	}
	s.Hear(stationMAC(1), home, now, false)
	taken := 0
	for n := range 5 * wire.MaxStations {
		if s.Hear(made(n), thief, now, false) {
			taken++
		}
	}
	should.Be(t, taken, wire.MaxStations-1, "stations were learned")
	if s.Hear(stationMAC(1), thief, now, false) || !s.Hear(stationMAC(1), home, now.Add(time.Second), false) {
		t.Error("the station was forgotten")
	}
	now = now.Add(wire.StationLife)
	if !s.Hear(made(9999), thief, now, false) { // the others are not heard
		t.Error("there is no room")
	}
	at(home)
	if _, ok := s.Find(made(1)); ok {
		t.Error("a station that is not heard was not forgotten where there was no room")
	}
	should.Be(t, s.Hear(stationMAC(1), thief, now.Add(wire.StationLife), false), true, "a station that was not heard does not move")
	at(thief)
	should.Be(t, s.Hear(stationMAC(1), home, now, true), true, "a trusted station does not move")
	at(home)
}
