package wire_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

// wireKey makes a key of one digit.
func wireKey(t testing.TB, digit string) *sealed.Key {
	t.Helper()
	k, err := sealed.ParseKey([]byte(strings.Repeat(digit, 2*sealed.KeySize)))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// exchange sends f from a until it arrives at b: the first frames find no session.
func exchange(t testing.TB, a, b *wire.UDP, f []byte) {
	t.Helper()
	for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
		send(a, f)
		if got := b.Receive(); got != nil {
			if !bytes.Equal(got, f) {
				t.Fatal("another frame has arrived")
			}
			b.Release()
			return
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

func keyedPair(t testing.TB, mtu int) (a, b *wire.UDP) {
	t.Helper()
	key := wireKey(t, "a")
	b = newUDP(t, wire.UDPOptions{MTU: mtu, Key: key})
	a = newUDP(t, wire.UDPOptions{MTU: mtu, Key: key, Peers: []string{b.LocalAddr().String()}})
	exchange(t, a, b, frameOf(stationMAC(2), stationMAC(1), 0))
	exchange(t, b, a, frameOf(stationMAC(1), stationMAC(2), 0))
	time.Sleep(5 * time.Millisecond)
	drain(a)
	drain(b)
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
				if send(a, f); !bytes.Equal(receive(b), f) {
					t.Fatalf("a frame of %d bytes does not arrive: %+v, %+v", len(f), a.Stats(), b.Stats())
				}
				g := frameOf(stationMAC(1), stationMAC(2), n)
				if send(b, g); !bytes.Equal(receive(a), g) {
					t.Fatalf("an answer of %d bytes does not arrive: %+v, %+v", len(g), a.Stats(), b.Stats())
				}
			}
			a.Close()
			b.Close()
			if after := leaktest.Files(t); after != before {
				t.Errorf("%d file descriptors before, %d after", before, after)
			}
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
			for end := time.Now().Add(timeout); tt.countA(a.Stats()) == 0 || tt.countB(b.Stats()) == 0 || logA.String() == "" || logB.String() == ""; time.Sleep(time.Millisecond) {
				send(b, checkedFrame(stationMAC(1), stationMAC(2)))
				send(c, checkedFrame(stationMAC(2), stationMAC(1)))
				if time.Now().After(end) {
					t.Fatalf("counts %+v, %+v", a.Stats(), b.Stats())
				}
			}
			if a.Receive() != nil || b.Receive() != nil {
				t.Error("a frame was delivered")
			}
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

// TestUDPDamagedSaysNothing: what has been cut off or damaged on the way, or is no frame at
// all, says nothing of a key: the log stays empty, whether this end has one or not.
func TestUDPDamagedSaysNothing(t *testing.T) {
	s := newStranger(t)
	peer := newUDP(t, wire.UDPOptions{Key: wireKey(t, "b"), Peers: []string{s.conn.LocalAddr().String()}})
	send(peer, checkedFrame(stationMAC(1), stationMAC(2)))
	hello := s.next(timeout)
	if hello == nil {
		t.Fatal("no hello")
	}
	for _, key := range []*sealed.Key{nil, wireKey(t, "a")} {
		var log outputtest.Buffer
		u := newUDP(t, wire.UDPOptions{Key: key, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		sent := 0
		try := func(p []byte) { s.send(u.LocalAddr(), p); sent++ }
		for _, whole := range [][]byte{hello, checkedFrame(stationMAC(1), stationMAC(2))} {
			for _, n := range []int{14, 15, 16, 17, 40, 63, 64, len(whole) - 1} {
				try(whole[:n])
			}
			if key != nil || whole[14] == datasheet.WireVersion {
				for i := range whole { // each hello once: which of them is damaged cannot be told
					if b := bytes.Clone(whole); i != 12 && i != 13 {
						b[i] ^= 0x10
						try(b)
					}
				}
			}
		}
		try([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		for end := time.Now().Add(timeout); ; time.Sleep(time.Millisecond) {
			c := u.Stats()
			for u.Receive() != nil {
				u.Release()
			}
			if key == nil && c.Keyed >= 6 || int(c.Sealed.Plain+c.Sealed.Malformed+c.Sealed.BadHandshakes+c.Sealed.Stale+c.Runts) >= sent || time.Now().After(end) {
				break
			}
		}
		u.Close()
		if log.String() != "" {
			t.Errorf("the log says %s", log.String())
		}
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
	if c := a.Stats().Sealed; c.Sessions != 2 {
		t.Errorf("counts %+v", c)
	}
}

// TestUDPKeyIsNotTakenOver: a thief without the key changes nothing.
func TestUDPKeyIsNotTakenOver(t *testing.T) {
	a, b := keyedPair(t, 0)
	thief := newStranger(t)
	for range 20 {
		thief.send(a.LocalAddr(), frameOf(stationMAC(1), stationMAC(2), 0))
		thief.send(b.LocalAddr(), frameOf(stationMAC(2), stationMAC(1), 0))
	}
	f := frameOf(stationMAC(2), stationMAC(1), 5)
	if send(a, f); !bytes.Equal(receive(b), f) {
		t.Error("a frame does not arrive")
	}
	if thief.next(20*time.Millisecond) != nil {
		t.Error("something went to the thief")
	}
	if c := b.Stats().Sealed; c.Plain != 20 {
		t.Errorf("counts %+v", c)
	}
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
		for end := time.Now().Add(timeout); ; runtime.Gosched() {
			send(a, f)
			got := b.Receive()
			if got != nil && bytes.Equal(got, f) {
				b.Release()
				break
			}
			if got != nil {
				b.Release() // sent twice, as it was not there yet
			}
			if time.Now().After(end) {
				t.Fatalf("frame %d does not arrive: %+v, %+v", i, a.Stats(), b.Stats())
			}
		}
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

// TestUDPKeyManInTheMiddle puts a relay between two ends that drops, repeats, delays,
// changes and reflects what it passes on. Nothing false is delivered.
func TestUDPKeyManInTheMiddle(t *testing.T) {
	key := wireKey(t, "a")
	o := wire.UDPOptions{Key: key}
	o.RenewKeys(sealed.Limits{Frames: 60})
	b := newUDP(t, o)
	m := newMan(t, b.LocalAddr())
	o.Peers = []string{m.front.LocalAddr().String()}
	a := newUDP(t, o)
	sent := map[string]bool{}
	delivered := 0
	take := func(u *wire.UDP) {
		for f := u.Receive(); f != nil; f = u.Receive() {
			if !sent[string(f)] {
				t.Fatal("a frame was delivered that was not sent, or twice, or to its sender")
			}
			delete(sent, string(f))
			delivered++
			u.Release()
		}
	}
	serial := uint64(0)
	for end := time.Now().Add(timeout); delivered < 300; time.Sleep(100 * time.Microsecond) {
		for _, x := range []struct {
			from, to *wire.UDP
			f        []byte
		}{{a, b, frameOf(stationMAC(2), stationMAC(1), 8)}, {b, a, frameOf(stationMAC(1), stationMAC(2), 8)}} {
			serial++
			binary.LittleEndian.PutUint64(x.f[datasheet.HeaderSize:], serial)
			sent[string(x.f)] = true
			send(x.from, x.f)
		}
		// What a sends is only in sent until b has it, so a frame that comes back to its
		// sender before would be missed; the address tells.
		for u, own := range map[*wire.UDP]byte{a: 1, b: 2} {
			if f := u.Receive(); f != nil && f[11] == own {
				t.Fatal("a frame came back to its sender")
			}
			take(u)
		}
		if time.Now().After(end) {
			t.Fatalf("%d frames of %d: %+v, %+v", delivered, serial, a.Stats(), b.Stats())
		}
	}
	m.stop()
	for range 20 {
		time.Sleep(time.Millisecond)
		drain(a)
		drain(b)
	}
	exchange(t, a, b, frameOf(stationMAC(2), stationMAC(1), 1))
	exchange(t, b, a, frameOf(stationMAC(1), stationMAC(2), 2))
}

// man is a relay between a client and a server that does wrong what it can.
type man struct {
	front, rear *net.UDPConn
	server      netip.AddrPort

	mu     sync.Mutex
	client netip.AddrPort
	rand   *rand.Rand // nil: it has stopped
	seen   [][]byte
}

func newMan(t *testing.T, server netip.AddrPort) *man {
	t.Helper()
	listen := func() *net.UDPConn {
		conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	m := &man{front: listen(), rear: listen(), server: server, rand: rand.New(rand.NewPCG(1, 2))}
	var readers sync.WaitGroup
	for _, conn := range []*net.UDPConn{m.front, m.rear} {
		readers.Go(func() {
			b := make([]byte, 1<<16)
			for {
				n, from, err := conn.ReadFromUDPAddrPort(b)
				if err != nil {
					return
				}
				m.pass(conn == m.front, b[:n], from)
			}
		})
	}
	t.Cleanup(func() {
		m.front.Close()
		m.rear.Close()
		readers.Wait()
	})
	return m
}

func (m *man) stop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rand = nil
}

// pass passes a datagram on, or does something else.
func (m *man) pass(forth bool, p []byte, from netip.AddrPort) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if forth {
		m.client = from
	}
	on := func(p []byte, forth bool) {
		if forth {
			_, _ = m.rear.WriteToUDPAddrPort(p, m.server)
		} else if m.client.IsValid() {
			_, _ = m.front.WriteToUDPAddrPort(p, m.client)
		}
	}
	if m.rand == nil {
		on(p, forth)
		return
	}
	if len(m.seen) < 1000 {
		m.seen = append(m.seen, slices.Clone(p))
	}
	old, c := m.seen[m.rand.IntN(len(m.seen))], slices.Clone(p)
	switch m.rand.IntN(12) {
	case 0: // dropped
		return
	case 1:
		on(p, forth)
	case 2: // late, if at all
		on(old, forth)
		return
	case 3:
		on(old, forth)
	case 4:
		on(old, !forth)
	case 5: // reflected
		on(p, !forth)
	case 6:
		c[m.rand.IntN(len(c))] ^= 1 << m.rand.IntN(8)
		on(c, forth)
		return
	case 7:
		on(c[:m.rand.IntN(len(c))], forth)
	case 8:
		copy(c[:min(16, len(old))], old)
		on(c, forth)
	case 9:
		copy(c[min(16, len(c)):], old[min(16, len(old)):])
		on(c, forth)
	}
	on(p, forth)
}

// BenchmarkUDP sends a frame and receives it, without and with a key.
func BenchmarkUDP(b *testing.B) {
	for _, size := range []int{64, 1500, 8 << 10} {
		for _, keyed := range []bool{false, true} {
			b.Run(fmt.Sprintf("%d/key=%v", size, keyed), func(b *testing.B) {
				var from, to *wire.UDP
				if keyed {
					from, to = keyedPair(b, datasheet.MaxMTU)
				} else {
					from, to = udpPair(b, datasheet.MaxMTU)
				}
				f := frameOf(stationMAC(2), stationMAC(1), size-datasheet.HeaderSize)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					send(from, f)
					for to.Receive() == nil {
					}
					to.Release()
				}
			})
		}
	}
}
