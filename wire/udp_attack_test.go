package wire_test

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
	"time"

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
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &stranger{t, conn}
}

func (s *stranger) send(to netip.AddrPort, p []byte) {
	s.t.Helper()
	if _, err := s.conn.WriteToUDPAddrPort(p, to); err != nil {
		s.t.Fatal(err)
	}
}

// next returns the next datagram that comes within the time given, nil if none does.
func (s *stranger) next(within time.Duration) []byte {
	s.t.Helper()
	if err := s.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		s.t.Fatal(err)
	}
	b := make([]byte, 1<<16)
	n, _, err := s.conn.ReadFromUDPAddrPort(b)
	if err != nil {
		return nil
	}
	return b[:n]
}

// sawFrames takes what has come so far and reports whether any of it is a frame
// that an engine has sent.
func (s *stranger) sawFrames() bool {
	for {
		p := s.next(20 * time.Millisecond)
		if p == nil {
			return false
		}
		if len(p) < 16 || p[15] != byte(datasheet.FrameStationQuery) {
			return true
		}
	}
}

// TestUDPStationIsNotTakenOver: whoever sends a frame with the address of a station
// that answers does not get its frames.
func TestUDPStationIsNotTakenOver(t *testing.T) {
	hub := newUDP(t, wire.UDPOptions{})
	one := newUDP(t, wire.UDPOptions{Peers: []string{hub.LocalAddr().String()}})
	thief := newStranger(t)
	send(one, frameOf(stationMAC(9), stationMAC(1), 0))
	if receive(hub) == nil {
		t.Fatal("the first frame does not arrive")
	}
	forged := frameOf(stationMAC(9), stationMAC(1), 1)
	for i := range 20 {
		thief.send(hub.LocalAddr(), forged)
		if receive(hub) == nil {
			t.Fatal("the forged frame does not arrive: the engine is to judge it")
		}
		f := frameOf(stationMAC(1), stationMAC(9), i)
		if send(hub, f); !bytes.Equal(receive(one), f) {
			t.Fatalf("frame %d does not arrive at the station", i)
		}
	}
	if thief.sawFrames() {
		t.Error("a frame went to somebody else")
	}
}

// TestUDPStationMoves: a station that has another address than before is found there
// once it does not answer at the old one.
func TestUDPStationMoves(t *testing.T) {
	hub := newUDP(t, wire.UDPOptions{})
	to := []string{hub.LocalAddr().String()}
	one := newUDP(t, wire.UDPOptions{Peers: to})
	send(one, frameOf(stationMAC(9), stationMAC(1), 0))
	if receive(hub) == nil {
		t.Fatal("the first frame does not arrive")
	}
	one.Close()
	moved := newUDP(t, wire.UDPOptions{Peers: to})
	f := frameOf(stationMAC(1), stationMAC(9), 5)
	for end := time.Now().Add(timeout); ; {
		send(moved, frameOf(stationMAC(9), stationMAC(1), 0))
		receive(hub)
		send(hub, f)
		if got := moved.Receive(); got != nil {
			if !bytes.Equal(got, f) {
				t.Error("another frame has arrived")
			}
			moved.Release()
			break
		}
		if time.Now().After(end) {
			t.Fatalf("frames do not follow a station that moved: %+v", hub.Stats())
		}
		time.Sleep(time.Millisecond)
	}
	if c := hub.Stats(); c.Moves != 1 {
		t.Errorf("counts %+v", c)
	}
}

// TestUDPClaimWithoutAnswer: a station that is gone is not at the address of a
// sender that only claims it, and does not answer.
func TestUDPClaimWithoutAnswer(t *testing.T) {
	t.Parallel()
	hub := newUDP(t, wire.UDPOptions{})
	one := newUDP(t, wire.UDPOptions{Peers: []string{hub.LocalAddr().String()}})
	send(one, frameOf(stationMAC(9), stationMAC(1), 0))
	if receive(hub) == nil {
		t.Fatal("the first frame does not arrive")
	}
	one.Close()
	thief := newStranger(t)
	queries := 0
	for end := time.Now().Add(1200 * time.Millisecond); time.Now().Before(end); {
		thief.send(hub.LocalAddr(), frameOf(stationMAC(9), stationMAC(1), 0))
		receive(hub)
		send(hub, frameOf(stationMAC(1), stationMAC(9), 0))
		for {
			p := thief.next(5 * time.Millisecond)
			if p == nil {
				break
			}
			if queries++; len(p) != datasheet.HeaderSize || p[15] != byte(datasheet.FrameStationQuery) {
				t.Fatal("a frame went to somebody who does not answer")
			}
			// An answer that has not seen the query's number is none.
			p[15], p[48] = byte(datasheet.FrameStationAnswer), p[48]^1
			copy(p, append(append([]byte{}, p[6:12]...), p[:6]...))
			thief.send(hub.LocalAddr(), checked(p))
		}
	}
	if queries == 0 {
		t.Error("the wire has not asked back")
	}
	if queries > 10 {
		t.Errorf("%d queries within about a second", queries)
	}
	if hub.Stats().Moves != 0 {
		t.Error("the station has moved")
	}
}

// checked puts the checksum into a frame.
func checked(frame []byte) []byte {
	aligned := append(make([]byte, 0, len(frame)), frame...)
	h := datasheet.HeaderAt(aligned)
	h.Flags |= datasheet.FrameChecksum
	h.Checksum = datasheet.FrameChecksumOf(aligned)
	return aligned
}

// TestUDPFloodOfStations: strangers who claim any number of addresses do not make
// the wire forget a station that it talks to.
func TestUDPFloodOfStations(t *testing.T) {
	hub := newUDP(t, wire.UDPOptions{})
	one := newUDP(t, wire.UDPOptions{Peers: []string{hub.LocalAddr().String()}})
	send(one, frameOf(stationMAC(9), stationMAC(1), 0))
	if receive(hub) == nil {
		t.Fatal("the first frame does not arrive")
	}
	f := frameOf(stationMAC(1), stationMAC(9), 5)
	if send(hub, f); !bytes.Equal(receive(one), f) {
		t.Fatal("the first answer does not arrive")
	}
	crowd := []*stranger{newStranger(t), newStranger(t), newStranger(t)}
	for i := range 3000 {
		crowd[i%3].send(hub.LocalAddr(), frameOf(stationMAC(9), datasheet.MAC{2, 7, 0, 0, byte(i >> 8), byte(i)}, 0))
		if i%100 != 99 {
			continue
		}
		for range 100 {
			if receive(hub) == nil {
				t.Fatal("a frame is lost")
			}
		}
	}
	if send(hub, f); !bytes.Equal(receive(one), f) {
		t.Error("the station has been forgotten")
	}
}
