package wire

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
	"github.com/trapeze-nic/trapeze/wire/internal/sealed"
)

const (
	// DefaultUDPMTU and defaultUDP6MTU keep a datagram within the 1500 bytes of
	// an Ethernet link: less 20 bytes of IPv4 or 40 of IPv6 header and 8 of UDP,
	// rounded down to a multiple of 8.
	DefaultUDPMTU  = 1464
	defaultUDP6MTU = 1448
	// maxDatagram holds any UDP payload, so that a peer with a larger MTU is
	// heard too: RFC 768 has a 16-bit length.
	maxDatagram = 1<<16 - 1
	// udpWindow is the number of the largest frames that the receive ring holds at
	// least: twice the 64 that a sender may have unacknowledged.
	udpWindow = 128
	// minUDPRing holds some hundred frames of default size, for several peers.
	minUDPRing = 1 << 20
	// readRetry is the pause after an error of the socket that may pass.
	readRetry = time.Millisecond
)

// UDPOptions are the choices of NewUDP.
type UDPOptions struct {
	// Local is the HOST:PORT to bind; port 0 takes any.
	Local string
	// Peers are the HOST:PORTs that get the frames for all, and those for
	// a station that has not been heard yet. If there are any, and no key, frames are taken
	// from no other address.
	Peers []string
	// MTU is the largest frame in bytes; if zero, DefaultUDPMTU, or
	// defaultUDP6MTU on an IPv6 address, less sealed.Overhead with a key. A datagram
	// is a frame, with a key sealed.Overhead longer.
	MTU int
	// Key encrypts and authenticates all frames; both ends have the same. Without
	// one, nil, the wire trusts every host that can see the datagrams (SPEC.md 8.11).
	Key *Key
	// Logger is told, not oftener than every 10 s, of peers that have another key, or
	// none, or one while this end has none; nil for slog.Default.
	Logger *slog.Logger

	renewal sealed.Limits
}

// UDPStats says what a UDP wire had to drop, and how often a way changed.
type UDPStats struct {
	SendErrors    uint64       `json:"send_errors" help:"Datagrams that the socket refused: no route, or no listener at the port." unit:"datagrams"`
	ReceiveErrors uint64       `json:"receive_errors" help:"Errors of the socket in receiving." unit:"errors"`
	Overruns      uint64       `json:"overruns" help:"Frames that arrived while the receive ring was full." unit:"frames"`
	Runts         uint64       `json:"runts" help:"Datagrams too short for an Ethernet header." unit:"datagrams"`
	Homeless      uint64       `json:"homeless" help:"Frames without an address to send them to." unit:"frames"`
	Moves         uint64       `json:"moves" help:"Stations that were found at another address." unit:"moves"`
	Strangers     uint64       `json:"strangers" help:"Frames from an address that is no peer's, or not that of their station, at an end without a key." unit:"frames"`
	Keyed         uint64       `json:"keyed" help:"Datagrams of a peer with a key, at an end without one." unit:"datagrams"`
	Sealed        sealed.Stats `json:"sealed" help:"What the tunnel refused; zero without a key." unit:"datagrams"`
}

// UDP is a wire between processes and hosts: each frame is a datagram. It learns
// from the frames that arrive which station is at which address (SPEC.md 8.11).
type UDP struct {
	ends.Base
	conn   *net.UDPConn
	local  netip.AddrPort
	peers  []netip.AddrPort
	tunnel *sealed.Tunnel // nil without a key
	log    *slog.Logger

	// The sender's.
	out      []byte         // the reserved frame
	reserved int            // its length, -1 for none
	box      *sealed.Sealer // nil without a key

	// The receiver's.
	in     line.Sender   // the socket's goroutine's
	came   line.Receiver // of what that has put there
	warned time.Time     // when the log was told something last

	stations stations

	kicked  atomic.Bool // the receiver is to look after the tunnel
	down    atomic.Bool // plug pulled
	closed  atomic.Bool
	stopped chan struct{}
	closing sync.Once

	sendErrors, receiveErrors, overruns, runts, homeless, moves, strangers, keyed atomic.Uint64
}

// NewUDP opens a UDP wire. The context bounds the time that name resolution
// takes. Errors are those of package net, or wrap ErrOptions.
func NewUDP(ctx context.Context, o UDPOptions) (*UDP, error) {
	// The resolver may have an answer before it looks at the context.
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	local, err := resolve(ctx, "ip", o.Local)
	if err != nil {
		return nil, err
	}
	network, family := "udp4", "ip4"
	if local.Addr().Is6() {
		network, family = "udp6", "ip6"
	}
	mtu := DefaultUDPMTU
	if family == "ip6" {
		mtu = defaultUDP6MTU
	}
	if o.Key != nil {
		mtu -= sealed.Overhead
	}
	mtu = cmp.Or(o.MTU, mtu)
	if err := checkMTU(mtu); err != nil {
		return nil, err
	}
	var peers []netip.AddrPort
	for _, p := range o.Peers {
		a, err := resolve(ctx, family, p)
		if err != nil {
			return nil, err
		}
		if a.Port() == 0 {
			return nil, fmt.Errorf("%w: peer %q has no port", ErrOptions, p)
		}
		peers = append(peers, a)
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(local))
	if err != nil {
		return nil, err
	}
	ringSize := powerOfTwo(max(minUDPRing, udpWindow*mtu))
	// Best effort: the kernel has limits of its own (net.core.rmem_max), and
	// what is lost is sent again.
	_ = conn.SetReadBuffer(ringSize)
	_ = conn.SetWriteBuffer(ringSize)
	ring := newHalf(ringSize)
	// UDP's own checksum is 16 bits wide and may be absent.
	u := &UDP{Base: ends.Base{Longest: mtu, Damages: true}, conn: conn, local: conn.LocalAddr().(*net.UDPAddr).AddrPort(), peers: peers,
		log: cmp.Or(o.Logger, slog.Default()),
		out: line.Aligned(mtu), reserved: -1, in: line.Sender{Half: ring}, came: line.NewReceiver(ring, maxDatagram), stopped: make(chan struct{})}
	if o.Key != nil {
		u.tunnel, u.box = sealed.New(o.Key, o.renewal, u.write), sealed.NewSealer(mtu)
		for _, a := range peers {
			u.tunnel.Configure(a)
		}
	}
	go u.receive()
	return u, nil
}

// resolve finds the address of HOST:PORT. An empty host is any IPv4 address.
func resolve(ctx context.Context, family, hostPort string) (netip.AddrPort, error) {
	host, service, err := net.SplitHostPort(hostPort)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", service)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if host == "" {
		return netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(port)), nil
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Zone() != "" && family != "ip4" {
		return netip.AddrPortFrom(zoned(a), uint16(port)), nil // a lookup would lose the zone
	}
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, family, host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	best := addrs[0].Unmap()
	for _, a := range addrs {
		// A name that has both is taken by its IPv4 address, which both ends
		// are likelier to have.
		if a = a.Unmap(); a.Is4() {
			best = a
			break
		}
	}
	return netip.AddrPortFrom(best, uint16(port)), nil
}

// zoned names the zone of an address by its interface, as what arrives has it, where it is the number of that.
func zoned(a netip.Addr) netip.Addr {
	if n, err := strconv.Atoi(a.Zone()); err == nil {
		if i, err := net.InterfaceByIndex(n); err == nil {
			return a.WithZone(i.Name)
		}
	}
	return a
}

// LocalAddr returns the address that the wire is bound to.
func (u *UDP) LocalAddr() netip.AddrPort { return u.local }

// Reserve always has room.
func (u *UDP) Reserve(n int) []byte {
	if uint(n) > uint(u.Longest) {
		return nil
	}
	u.reserved = n
	return u.out[:n:n]
}

// Commit sends the frame at once.
func (u *UDP) Commit() {
	if u.reserved < 0 {
		return
	}
	frame := u.out[:u.reserved]
	u.reserved = -1
	if u.down.Load() || u.closed.Load() {
		return
	}
	if len(frame) >= ethernetHeader {
		if to, ok := u.stations.find(datasheet.MAC(frame)); ok {
			u.send(frame, to)
			return
		}
	}
	// It is for all, or for a station that has not been heard.
	if len(u.peers) == 0 {
		u.homeless.Add(1)
	}
	for _, to := range u.peers {
		u.send(frame, to)
	}
}

// send sends a frame, sealed if the wire has a key.
func (u *UDP) send(frame []byte, to netip.AddrPort) {
	if u.tunnel == nil {
		u.write(frame, to)
		return
	}
	link := u.tunnel.Link(to)
	if link == nil { // too many others have come meanwhile
		u.homeless.Add(1)
		return
	}
	datagram, wake := link.Seal(u.box, frame)
	if wake { // the receiver is to look after the tunnel now
		u.kicked.Store(true)
		_ = u.conn.SetReadDeadline(time.Unix(1, 0))
	}
	if datagram != nil {
		u.write(datagram, to)
	}
}

func (u *UDP) write(datagram []byte, to netip.AddrPort) {
	if _, err := u.conn.WriteToUDPAddrPort(datagram, to); err != nil {
		u.sendErrors.Add(1)
	}
}

// Flush has nothing left to do.
func (u *UDP) Flush() {}

func (u *UDP) Receive() []byte {
	if u.down.Load() || u.closed.Load() {
		u.came.Discard()
		return nil
	}
	return u.came.Take()
}

func (u *UDP) Release() { u.came.Release() }

// LinkUp reports whether the plug is in: UDP cannot tell whether a peer is
// there.
func (u *UDP) LinkUp() bool { return !u.down.Load() && !u.closed.Load() }

func (u *UDP) SetLink(up bool) {
	u.down.Store(!up)
	u.Link.Call()
}

// Close closes the socket and waits until nothing is received any more.
func (u *UDP) Close() error {
	var err error
	u.closing.Do(func() {
		u.closed.Store(true)
		u.Wake.Set(nil)
		u.Link.Set(nil)
		err = u.conn.Close()
	})
	<-u.stopped
	return err
}

// Stats may be called from any goroutine.
func (u *UDP) Stats() UDPStats {
	c := UDPStats{SendErrors: u.sendErrors.Load(), ReceiveErrors: u.receiveErrors.Load(),
		Overruns: u.overruns.Load(), Runts: u.runts.Load(), Homeless: u.homeless.Load(),
		Moves: u.moves.Load(), Strangers: u.strangers.Load(), Keyed: u.keyed.Load()}
	if u.tunnel != nil {
		c.Sealed = u.tunnel.Stats()
	}
	return c
}
