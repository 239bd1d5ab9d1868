package wire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

// wireKey makes a key of one digit.
func wireKey(t testing.TB, digit string) *sealed.Key {
	t.Helper()
	return must.Get(sealed.ParseKey([]byte(strings.Repeat(digit, 2*sealed.KeySize))))(t)
}

// exchange sends f from a until it arrives at b: the first frames find no session. Others may come
// before it, from exchanges that have ended.
func exchange(t testing.TB, a, b *wire.UDP, f []byte) {
	t.Helper()
	for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		send(a, f)
		if got := b.Receive(); got != nil {
			same := bytes.Equal(got, f)
			b.Release()
			if same {
				return
			}
		}
		if time.Now().After(end) {
			t.Fatalf("the frame does not arrive: %+v, %+v", a.Stats(), b.Stats())
		}
	}
}

// drain takes what has arrived.
func drain(u *wire.UDP) {
	for u.Receive() != nil {
		u.Release()
	}
}

// settle takes what is under way from a to b, as the last of which it sends a frame.
func settle(t testing.TB, a, b *wire.UDP, last []byte) {
	t.Helper()
	send(a, last)
	for got := receive(b); !bytes.Equal(got, last); got = receive(b) {
		must.Be(t, got == nil, false, "the last frame does not arrive: %+v, %+v", a.Stats(), b.Stats())
	}
}

func keyedPair(t testing.TB, mtu int) (a, b *wire.UDP) {
	t.Helper()
	key := wireKey(t, "a")
	b = newUDP(t, wire.UDPOptions{MTU: mtu, Key: key})
	a = newUDP(t, wire.UDPOptions{MTU: mtu, Key: key, Peers: []string{b.LocalAddr().String()}})
	exchange(t, a, b, frameOf(stationMAC(2), stationMAC(1), 0))
	exchange(t, b, a, frameOf(stationMAC(1), stationMAC(2), 0))
	settle(t, a, b, frameOf(stationMAC(2), stationMAC(1), 1))
	settle(t, b, a, frameOf(stationMAC(1), stationMAC(2), 1))
	return a, b
}

func TestUDPKey(t *testing.T) {
	for _, mtu := range []int{0, datasheet.MinMTU, 9000, datasheet.MaxMTU} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) {
			before := leaktest.Files(t)
			a, b := keyedPair(t, mtu)
			if want := wire.DefaultUDPMTU - sealed.Overhead; mtu == 0 && a.MTU() != want {
				t.Errorf("MTU %d, want %d", a.MTU(), want)
			}
			for _, n := range []int{0, 1, 96, a.MTU() - datasheet.HeaderSize} {
				f := frameOf(stationMAC(2), stationMAC(1), n)
				must.Same(t, carry(a, b, f), f, "a frame of %d bytes does not arrive: %+v, %+v", len(f), a.Stats(), b.Stats())
				g := frameOf(stationMAC(1), stationMAC(2), n)
				must.Same(t, carry(b, a, g), g, "an answer of %d bytes does not arrive: %+v, %+v", len(g), a.Stats(), b.Stats())
			}
			a.Close()
			b.Close()
			should.Be(t, leaktest.Files(t), before, "file descriptors before, after")
		})
	}
}

// TestUDPKeyAtOneEnd: nothing is delivered between ends with and without a key, or
// with two keys, and the log of both says why.
func TestUDPKeyAtOneEnd(t *testing.T) {
	for _, tt := range []struct {
		name           string
		a, b           *sealed.Key
		saysA, saysB   string
		countA, countB func(c wire.UDPStats) uint64
	}{
		{"only the client", wireKey(t, "a"), nil, "has no key", "this end has none",
			func(c wire.UDPStats) uint64 { return c.Sealed.Plain }, func(c wire.UDPStats) uint64 { return c.Keyed }},
		{"only the server", nil, wireKey(t, "a"), "this end has none", "has no key",
			func(c wire.UDPStats) uint64 { return c.Keyed }, func(c wire.UDPStats) uint64 { return c.Sealed.Plain }},
		{"two keys", wireKey(t, "a"), wireKey(t, "b"), "another key", "another key",
			func(c wire.UDPStats) uint64 { return c.Sealed.BadHandshakes }, func(c wire.UDPStats) uint64 { return c.Sealed.BadHandshakes }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var logA, logB outputtest.Buffer
			a := newUDP(t, wire.UDPOptions{Key: tt.a, Logger: slog.New(slog.NewTextHandler(&logA, nil))})
			b := newUDP(t, wire.UDPOptions{Key: tt.b, Peers: []string{a.LocalAddr().String()}, Logger: slog.New(slog.NewTextHandler(&logB, nil))})
			c := newUDP(t, wire.UDPOptions{Key: tt.a, Peers: []string{b.LocalAddr().String()}})
			waittest.Until(t, "both ends count and say it", func() bool {
				send(b, checkedFrame(stationMAC(1), stationMAC(2)))
				send(c, checkedFrame(stationMAC(2), stationMAC(1)))
				return tt.countA(a.Stats()) != 0 && tt.countB(b.Stats()) != 0 && logA.String() != "" && logB.String() != ""
			})
			should.Be(t, a.Receive() != nil || b.Receive() != nil, false, "a frame was delivered")
			a.Close()
			b.Close()
			if s := logA.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, tt.saysA) || !strings.Contains(s, "key=FILE") {
				t.Errorf("the log says %q", s)
			}
			if s := logB.String(); strings.Count(s, "\n") != 1 || !strings.Contains(s, tt.saysB) || !strings.Contains(s, "key=FILE") {
				t.Errorf("the log says %q", s)
			}
		})
	}
}

// checkedFrame is a frame as engines send it on a UDP wire.
func checkedFrame(to, from datasheet.MAC) []byte {
	f := frameOf(to, from, 100)
	h := datasheet.HeaderAt(f)
	h.Version, h.Type, h.Flags, h.Length = datasheet.WireVersion, datasheet.FrameConnectRequest, datasheet.FrameChecksum, 100
	h.Checksum = datasheet.FrameChecksumOf(f)
	return f
}

// TestUDPDamagedSaysNothing: a datagram that is cut off, or is no frame at all, says nothing of a
// key: the log stays empty, whether this end has one or not.
func TestUDPDamagedSaysNothing(t *testing.T) {
	s := newStranger(t)
	peer := newUDP(t, wire.UDPOptions{Key: wireKey(t, "b"), Peers: []string{s.conn.LocalAddr().String()}})
	send(peer, checkedFrame(stationMAC(1), stationMAC(2)))
	hello := s.next(timeout)
	must.Be(t, hello == nil, false, "no hello")
	for _, key := range []*sealed.Key{nil, wireKey(t, "a")} {
		var log outputtest.Buffer
		u := newUDP(t, wire.UDPOptions{Key: key, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		sent := 0
		try := func(p []byte) { s.send(u.LocalAddr(), p); sent++ }
		for n := range len(hello) {
			try(hello[:n])
		}
		for _, n := range []int{14, 15, 16, 17, 40, 63} {
			try(checkedFrame(stationMAC(1), stationMAC(2))[:n])
		}
		try([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		waittest.Until(t, "all of them are counted", func() bool {
			c := u.Stats()
			for u.Receive() != nil {
				u.Release()
				sent--
			}
			return int(c.Keyed+c.Sealed.Plain+c.Sealed.Malformed+c.Runts) >= sent
		})
		u.Close()
		should.Be(t, log.String(), "", "the log")
	}
}

// TestUDPKeyRestarts: either end is opened anew, at its port or another.
func TestUDPKeyRestarts(t *testing.T) {
	t.Parallel()
	key := wireKey(t, "a")
	b := newUDP(t, wire.UDPOptions{Key: key})
	to := []string{b.LocalAddr().String()}
	for i := range 3 {
		a := newUDP(t, wire.UDPOptions{Key: key, Peers: to})
		exchange(t, a, b, frameOf(stationMAC(2), stationMAC(byte(10+i)), 0))
		exchange(t, b, a, frameOf(stationMAC(byte(10+i)), stationMAC(2), 0))
		a.Close()
		drain(b)
	}
	a := newUDP(t, wire.UDPOptions{Key: key, Peers: to})
	exchange(t, a, b, frameOf(stationMAC(2), stationMAC(1), 0))
	b.Close()
	b = newUDP(t, wire.UDPOptions{Local: to[0], Key: key})
	exchange(t, a, b, frameOf(stationMAC(2), stationMAC(1), 0))
	should.Be(t, a.Stats().Sealed.Sessions, 2, "sessions")
}

// TestUDPKeyIsNotTakenOver: a thief without the key changes nothing.
func TestUDPKeyIsNotTakenOver(t *testing.T) {
	a, b := keyedPair(t, 0)
	thief := newStranger(t)
	forged := frameOf(stationMAC(2), stationMAC(1), 100)
	forged[14], forged[15] = 0x82, 3 // as if it were sealed
	for range 20 {
		thief.send(a.LocalAddr(), frameOf(stationMAC(1), stationMAC(2), 0))
		thief.send(b.LocalAddr(), frameOf(stationMAC(2), stationMAC(1), 0))
		thief.send(b.LocalAddr(), forged)
	}
	f := frameOf(stationMAC(2), stationMAC(1), 5)
	should.Same(t, carry(a, b, f), f, "a frame does not arrive")
	should.Be(t, thief.next(20*time.Millisecond) != nil, false, "something went to the thief")
	should.Be(t, b.Stats().Sealed.Plain, 20, "plain")
	should.Be(t, b.Stats().Sealed.Stale, 20, "stale")
}

// TestUDPKeyRenewal has keys renewed under traffic, which loses none of it.
func TestUDPKeyRenewal(t *testing.T) {
	key := wireKey(t, "a")
	o := wire.UDPOptions{Key: key}
	o.RenewKeys(sealed.Limits{Frames: 20})
	b := newUDP(t, o)
	o.Peers = []string{b.LocalAddr().String()}
	a := newUDP(t, o)
	exchange(t, a, b, frameOf(stationMAC(2), stationMAC(1), 0))
	for i := range soak.Count(200, 400) {
		f := frameOf(stationMAC(2), stationMAC(1), 8)
		binary.LittleEndian.PutUint64(f[datasheet.HeaderSize:], uint64(i))
		exchange(t, a, b, f)
	}
	if c := a.Stats().Sealed; c.Sessions < 5 {
		t.Errorf("counts %+v", c)
	}
}

func TestUDPKeyAllocatesNothing(t *testing.T) {
	a, b := keyedPair(t, 0)
	f, g := frameOf(stationMAC(2), stationMAC(1), 64), frameOf(stationMAC(1), stationMAC(2), 64)
	if n := testing.AllocsPerRun(200, func() {
		for _, x := range []struct {
			from, to *wire.UDP
			frame    []byte
		}{{a, b, f}, {b, a, g}} {
			send(x.from, x.frame)
			for x.to.Receive() == nil {
				time.Sleep(10 * time.Microsecond)
			}
			x.to.Release()
		}
	}); n > 0.1 { // keys are looked after twice a second
		t.Errorf("%v allocations a round trip", n)
	}
}
