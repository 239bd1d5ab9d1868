package tcpip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/log"
	gvisor "gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/icmp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"
	"gvisor.dev/gvisor/pkg/tcpip/transport/udp"

	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers" // those that Open knows
	_ "github.com/trapeze-nic/trapeze/vfio/kernel"      // pci:
)

// nic is the number of the only interface of a stack.
const nic gvisor.NICID = 1

// Errors of this package, wrapped.
var (
	ErrConfig   = errors.New("bad configuration")
	ErrInUse    = errors.New("another host has the address")
	ErrNoDHCP   = errors.New("no DHCP server has answered")
	ErrNoRoute  = errors.New("no such host")
	ErrPortDead = errors.New("the port has failed")
)

// Config are choices of Open. The zero value asks DHCP for an IPv4 address and takes IPv6 addresses from router advertisements.
type Config struct {
	// Addresses are the host's own, IPv4 and IPv6, with the length of their network's prefix. With any, DHCP is off.
	Addresses []netip.Prefix
	// Gateways are the routers for what is not in a network of Addresses, at most one for each version of IP.
	Gateways []netip.Addr
	// DNS are the servers that Resolver asks; with DHCP those that it names are asked if there are none here.
	DNS []netip.Addr
	// NoIPv6 leaves IPv6 off, link-local and router advertisements too.
	NoIPv6 bool

	// Queues of the port, 1 to 64; 1 if zero. RSS keeps a flow on one.
	Queues int
	// MTU is the longest IP packet in bytes, 1280 to 9000, and 68 without IPv6; 1500 if zero.
	MTU int
	// Buffers of the port's pool; 4096 for each queue if zero.
	Buffers int
	// Buffer is the most bytes that a connection holds in each direction, 4 KiB to 64 MiB; 4 MiB if zero.
	Buffer int
	// Timeout limits the wait for an address; 15 s if zero.
	Timeout time.Duration
}

// The bounds of Config.
const (
	leastBuffer, mostBuffer, defaultBuffer = 4 << 10, 64 << 20, 4 << 20
	defaultTimeout                         = 15 * time.Second
	poolBuffers                            = 4096
)

func (c *Config) complete() error {
	bad := func(name string, value any, allowed string) error {
		return fmt.Errorf("%w: %s %v: %s", ErrConfig, name, value, allowed)
	}
	c.MTU, c.Queues, c.Buffer, c.Timeout = cmp.Or(c.MTU, 1500), cmp.Or(c.Queues, 1), cmp.Or(c.Buffer, defaultBuffer), cmp.Or(c.Timeout, defaultTimeout)
	c.Buffers = cmp.Or(c.Buffers, c.Queues*poolBuffers)
	least := header.IPv6MinimumMTU
	if c.NoIPv6 {
		least = ethernet.MinMTU
	}
	switch {
	case c.MTU < least || c.MTU > 9000:
		return bad("MTU", c.MTU, fmt.Sprintf("%d to 9000", least))
	case c.Buffer < leastBuffer || c.Buffer > mostBuffer:
		return bad("Buffer", c.Buffer, fmt.Sprintf("%d to %d bytes", leastBuffer, mostBuffer))
	case c.Timeout < 0:
		return bad("Timeout", c.Timeout, "above 0")
	}
	var gateways [2]int
	for _, a := range c.Addresses {
		if !a.IsValid() || a.Addr().IsUnspecified() || a.Addr().IsMulticast() || a.Addr().Zone() != "" {
			return bad("Addresses", a, "an address of one host with its prefix, as 10.0.0.2/24")
		}
		if a.Addr().Is6() && c.NoIPv6 {
			return bad("Addresses", a, "IPv4 with NoIPv6")
		}
	}
	for _, g := range c.Gateways {
		if !g.IsValid() || g.IsUnspecified() || g.IsMulticast() {
			return bad("Gateways", g, "the address of a router")
		}
		if gateways[g.BitLen()/128]++; gateways[g.BitLen()/128] > 1 {
			return bad("Gateways", g, "one for each version of IP")
		}
	}
	return nil
}

// Stack is TCP/IP on one port. Its methods may be called from several goroutines.
type Stack struct {
	address  string
	config   Config
	end      end
	counters *Counters
	port     ethernet.Port // nil over a ring
	link     *link         // nil over a ring
	release  func() error  // gives back what the stack stands on
	s        *stack.Stack
	lease    *lease
	hide     func() // ends telemetry; nil over a ring
	routers  routers

	mu     sync.Mutex // guards what follows
	dns    []netip.Addr
	failed error // of the port
	closed bool
}

// end is a link with goroutines of its own.
type end interface {
	stack.LinkEndpoint
	start()
	halt() // it may be called again
}

// Open opens a port, as "pci:0000:03:00.0", "afxdp:eth0" or "vhost-user:/run/port.sock", and runs a TCP/IP stack on it, once it has its
// addresses. Close gives all back. It fails with ErrConfig, ErrInUse, ErrNoDHCP, the error of ctx, and
// as ethernet.Open does.
func Open(ctx context.Context, address string, c Config) (_ *Stack, err error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("open %s: %w", address, err)
	}
	pool, err := ethernet.NewPool(ethernet.PoolOptions{Buffers: c.Buffers, Size: max(2048, (c.MTU+ethernet.HeaderSize+1023)/1024*1024)})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, pool.Close())
		}
	}()
	o := ethernet.Options{Pool: pool, Queues: c.Queues, MTU: c.MTU}
	var port ethernet.Port
	for _, with := range []ethernet.Options{{Interrupts: true, Offloads: ethernet.OffloadReceiveSum | ethernet.OffloadSendSum},
		{Interrupts: true, Offloads: ethernet.OffloadReceiveSum}, {Interrupts: true}, {}} {
		o.Interrupts, o.Offloads = with.Interrupts, with.Offloads
		if port, err = ethernet.Open(ctx, address, o); !errors.Is(err, ethernet.ErrNotSupported) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	s, err := New(ctx, port, c)
	if err != nil {
		return nil, errors.Join(err, port.Close())
	}
	s.release = func() error { return errors.Join(port.Close(), pool.Close()) }
	return s, nil
}

// New runs a stack on an open port, which is the Stack's from then on. The pool stays the caller's. On error the port does, too.
func New(ctx context.Context, port ethernet.Port, c Config) (_ *Stack, err error) {
	s := &Stack{address: port.Info().Device, config: c, port: port, release: port.Close}
	s.link = newLink(port, s.fail)
	s.end, s.counters = s.link, &s.link.stats
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// begin makes the stack on its link and gives it its addresses.
func (s *Stack) begin(ctx context.Context) error {
	c := &s.config
	if err := c.complete(); err != nil {
		return err
	}
	s.dns = c.DNS
	quiet.Do(func() { log.SetTarget(debugLog{}) })
	o := stack.Options{
		NetworkProtocols:   []stack.NetworkProtocolFactory{arp.NewProtocolWithOptions(arp.Options{DADConfigs: probe}), ipv4.NewProtocolWithOptions(ipv4.Options{AllowExternalLoopbackTraffic: false})},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol, udp.NewProtocol, icmp.NewProtocol4, icmp.NewProtocol6},
		HandleLocal:        true,
	}
	if !c.NoIPv6 {
		six := ipv6.Options{NDPDisp: &s.routers}
		if s.port != nil { // a ring has no stations, and one other host
			six.DADConfigs, six.NDPConfigs, six.AutoGenLinkLocal = probe, ndpConfigs(), true
		}
		o.NetworkProtocols = append(o.NetworkProtocols, ipv6.NewProtocolWithOptions(six))
	}
	s.s = stack.New(o)
	s.routers.stack = s.s
	if err := s.tune(); err != nil {
		s.halt()
		return err
	}
	if e := s.s.CreateNIC(nic, s.end); e != nil {
		s.halt()
		return s.error("create interface", e)
	}
	s.end.start()
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	if err := s.configure(ctx); err != nil {
		s.halt()
		return err
	}
	if s.port != nil {
		s.hide = s.show()
	}
	return nil
}

// tune sets the options of TCP: SACK, buffers that grow with a connection, and as few segments as can be.
func (s *Stack) tune() error {
	sack := gvisor.TCPSACKEnabled(true)
	recv := gvisor.TCPReceiveBufferSizeRangeOption{Min: leastBuffer, Default: min(1<<20, s.config.Buffer), Max: s.config.Buffer}
	send := gvisor.TCPSendBufferSizeRangeOption{Min: leastBuffer, Default: min(1<<20, s.config.Buffer), Max: s.config.Buffer}
	moderate := gvisor.TCPModerateReceiveBufferOption(true)
	for _, o := range []gvisor.SettableTransportProtocolOption{&sack, &recv, &send, &moderate} {
		if e := s.s.SetTransportProtocolOption(tcp.ProtocolNumber, o); e != nil {
			return s.error("set options of TCP", e)
		}
	}
	return nil
}

// debugLog takes the log of gVisor's packages, which tells of each packet that makes no sense.
type debugLog struct{}

var quiet sync.Once

// Emit implements log.Emitter.
func (debugLog) Emit(_ int, _ log.Level, _ time.Time, format string, v ...any) {
	if slog.Default().Enabled(context.Background(), slog.LevelDebug) {
		slog.Debug("netstack: " + fmt.Sprintf(format, v...))
	}
}

// error names what failed.
func (s *Stack) error(op string, e gvisor.Error) error {
	return fmt.Errorf("%s on %s: %s", op, s.address, e)
}

// fail ends all connections: the port has failed.
func (s *Stack) fail(err error) {
	s.mu.Lock()
	if s.failed == nil && !s.closed {
		s.failed = fmt.Errorf("%s: %w: %w", s.address, ErrPortDead, err)
	}
	s.mu.Unlock()
	s.abort()
}

// abort ends all endpoints: each call on one of them fails.
func (s *Stack) abort() {
	for _, list := range [][]stack.TransportEndpoint{s.s.RegisteredEndpoints(), s.s.CleanupEndpoints()} {
		for _, e := range list {
			e.Abort()
		}
	}
}

// usable reports why there can be no new connection, nil if there can.
func (s *Stack) usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	return s.failed
}

// Err is the reason for which the port has failed, nil while it works.
func (s *Stack) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// Restart sets a port that has failed up again. Connections and listeners that were there have ended; addresses stay.
func (s *Stack) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	if s.port == nil {
		return fmt.Errorf("restart %s: a ring that has ended is dialled anew: %w", s.address, errors.ErrUnsupported)
	}
	s.end.halt()
	if err := s.port.Restart(ctx); err != nil {
		return err
	}
	s.failed = nil
	s.end.start()
	return nil
}

// Port returns the port, for its state and its counters; nil over a ring.
func (s *Stack) Port() ethernet.Port { return s.port }

// Counters returns those of the link, which grow on.
func (s *Stack) Counters() *Counters { return s.counters }

// Stats returns those of the protocols: gvisor.dev/gvisor/pkg/tcpip has their meaning.
func (s *Stack) Stats() gvisor.Stats { return s.s.Stats() }

// Addresses returns the addresses that the stack has now.
func (s *Stack) Addresses() (all []netip.Prefix) {
	for _, a := range s.s.NICInfo()[nic].ProtocolAddresses {
		if ip, ok := netip.AddrFromSlice(a.AddressWithPrefix.Address.AsSlice()); ok {
			all = append(all, netip.PrefixFrom(ip, a.AddressWithPrefix.PrefixLen))
		}
	}
	return all
}

// halt ends the goroutines.
func (s *Stack) halt() {
	if s.hide != nil {
		s.hide()
		s.link.captured.End()
	}
	s.lease.end()
	defer s.routers.writers.Wait()
	s.abort()
	s.s.Close()
	s.end.halt()
	s.s.Wait()
}

// Close ends all connections and listeners, and closes the port. Closing again does nothing.
func (s *Stack) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.halt()
	return s.release()
}
