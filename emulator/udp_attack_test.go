package emulator_test

import (
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// udpHost makes a device on a UDP wire, whose connections send probes often.
func udpHost(t *testing.T, mac datasheet.MAC, o wire.UDPOptions) (*adminHost, *wire.UDP) {
	t.Helper()
	o.Local = "127.0.0.1:0"
	w, err := wire.NewUDP(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	timing := engine.DefaultTiming()
	timing.Probe = 20 * time.Millisecond
	d, err := emulator.New(emulator.Options{Name: "emu:?" + mac.String(), Wire: w, MAC: mac, Timing: timing, Thread: true})
	if err != nil {
		t.Fatal(err)
	}
	return newAdminHost(t, d), w
}

// spy is a socket that keeps what comes to it but queries of wires.
type spy struct {
	conn   *net.UDPConn
	mu     sync.Mutex
	frames [][]byte
}

func newSpy(t *testing.T) *spy {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := &spy{conn: conn}
	var done sync.WaitGroup
	done.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, _, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if n < datasheet.HeaderSize || b[15] != byte(datasheet.FrameStationQuery) {
				s.mu.Lock()
				s.frames = append(s.frames, slices.Clone(b[:n]))
				s.mu.Unlock()
			}
		}
	})
	t.Cleanup(func() {
		conn.Close()
		done.Wait()
	})
	return s
}

// claim sends an empty data frame that a station might have sent.
func (s *spy) claim(t *testing.T, to netip.AddrPort, station, destination datasheet.MAC, endpoint uint32) {
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

// TestUDPConnectionIsNotTakenOver: somebody who can only send datagrams, and who
// claimed both stations' addresses before they were heard, and goes on, sees none of
// their frames but echoes of his own.
func TestUDPConnectionIsNotTakenOver(t *testing.T) {
	checkFiles(t)
	clientMAC, serverMAC := datasheet.MAC{2, 0, 0, 0, 0, 1}, datasheet.MAC{2, 0, 0, 0, 0, 2}
	server, serverWire := udpHost(t, serverMAC, wire.UDPOptions{})
	client, clientWire := udpHost(t, clientMAC, wire.UDPOptions{Peers: []string{serverWire.LocalAddr().String()}})
	thief := newSpy(t)
	attack := func() {
		for endpoint := range uint32(4) {
			thief.claim(t, serverWire.LocalAddr(), clientMAC, serverMAC, endpoint)
			thief.claim(t, clientWire.LocalAddr(), serverMAC, clientMAC, endpoint)
		}
	}
	attack()
	time.Sleep(10 * time.Millisecond)
	connect(t, client, server)
	for range 30 {
		attack()
		time.Sleep(10 * time.Millisecond)
	}
	for name, h := range map[string]*adminHost{"client": client, "server": server} {
		if e, ok := h.next(); ok {
			t.Errorf("the %s's connection did not stand it: %+v", name, e)
		}
	}
	thief.mu.Lock()
	defer thief.mu.Unlock()
	for _, f := range thief.frames {
		if h := datasheet.HeaderAt(f); h == nil || h.Flags&datasheet.FrameEcho == 0 || h.Key != 0x12345678 {
			t.Fatalf("a frame went to a stranger: %+v", h)
		}
	}
}

// TestUDPConnectionFollowsItsPeer: the peer of a connection gets another address in
// the middle of it, as behind a NAT. Its frames carry the key, so it is asked there,
// and the frames follow.
func TestUDPConnectionFollowsItsPeer(t *testing.T) {
	checkFiles(t)
	server, serverWire := udpHost(t, datasheet.MAC{2, 0, 0, 0, 0, 2}, wire.UDPOptions{})
	r := newRelay(t, serverWire.LocalAddr())
	client, _ := udpHost(t, datasheet.MAC{2, 0, 0, 0, 0, 1}, wire.UDPOptions{Peers: []string{r.front.LocalAddr().String()}})
	connect(t, client, server)
	r.move()
	for end := time.Now().Add(timeout); r.back() < 5; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the frames do not follow: %+v", serverWire.Stats())
		}
	}
	if c := serverWire.Stats(); c.Moves == 0 {
		t.Errorf("counts %+v", c)
	}
	if e, ok := server.next(); ok {
		t.Errorf("the connection did not stand it: %+v", e)
	}
}

// relay passes datagrams between a client and a server, and can get another address
// as the server sees it.
type relay struct {
	t       *testing.T
	front   *net.UDPConn
	server  netip.AddrPort
	readers sync.WaitGroup

	mu     sync.Mutex
	client netip.AddrPort
	rear   *net.UDPConn
	frames int // of engines, that came back through rear
}

func newRelay(t *testing.T, server netip.AddrPort) *relay {
	t.Helper()
	r := &relay{t: t, server: server}
	r.front = r.listen()
	r.move()
	r.readers.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, from, err := r.front.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			r.mu.Lock()
			r.client = from
			_, _ = r.rear.WriteToUDPAddrPort(b[:n], r.server)
			r.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		r.front.Close()
		r.mu.Lock()
		r.rear.Close()
		r.mu.Unlock()
		r.readers.Wait()
	})
	return r
}

func (r *relay) listen() *net.UDPConn {
	r.t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// move gives the relay another address towards the server.
func (r *relay) move() {
	conn := r.listen()
	r.mu.Lock()
	if r.rear != nil {
		r.rear.Close()
	}
	r.rear, r.frames = conn, 0
	r.mu.Unlock()
	r.readers.Go(func() {
		b := make([]byte, 1<<16)
		for {
			n, _, err := conn.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			r.mu.Lock()
			if datasheet.FrameType(b[15]) != datasheet.FrameStationQuery {
				r.frames++
			}
			_, _ = r.front.WriteToUDPAddrPort(b[:n], r.client)
			r.mu.Unlock()
		}
	})
}

func (r *relay) back() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.frames
}
