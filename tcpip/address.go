package tcpip

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	gvisor "gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv6"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
)

// probe sets how an address is asked for before it is used (RFC 4862, 5.4; RFC 5227, 2.1): once, and the answer of a host on the same
// network comes in a fraction of the time.
var probe = stack.DADConfigurations{DupAddrDetectTransmits: 1, RetransmitTimer: 300 * time.Millisecond}

// ndpConfigs takes routers, prefixes and addresses from router advertisements.
func ndpConfigs() ipv6.NDPConfigurations {
	c := ipv6.DefaultNDPConfigurations()
	c.MaxRtrSolicitationDelay = 0
	return c
}

// configure gives the stack its addresses and routes.
func (s *Stack) configure(ctx context.Context) error {
	var claims errgroup.Group
	for _, a := range s.config.Addresses {
		claims.Go(func() error {
			if s.port != nil { // the other end of a ring is the only other host
				if err := s.claim(ctx, a); err != nil {
					return err
				}
			}
			return s.add(ctx, a)
		})
	}
	if err := claims.Wait(); err != nil {
		return err
	}
	s.routers.set(func(r *routers) { r.static = s.config.Gateways })
	if len(s.config.Addresses) > 0 {
		return nil
	}
	return s.lend(ctx)
}

// claim asks whether another host has an address.
func (s *Stack) claim(ctx context.Context, a netip.Prefix) error {
	result := make(chan error, 1)
	full, protocol := fullAddress(netip.AddrPortFrom(a.Addr(), 0))
	_, e := s.s.CheckDuplicateAddress(nic, protocol, full.Addr, func(r stack.DADResult) {
		switch r := r.(type) {
		case *stack.DADDupAddrDetected:
			station := cmp.Or(r.HolderLinkAddress.String(), "that answered") // neighbour discovery does not always say
			result <- fmt.Errorf("%s on %s: %w: the station %s", a.Addr(), s.address, ErrInUse, station)
		case *stack.DADError:
			result <- s.error("ask for "+a.Addr().String(), r.Err)
		case *stack.DADAborted:
			result <- fmt.Errorf("ask for %s: %w", a.Addr(), net.ErrClosed)
		default:
			result <- nil
		}
	})
	if e != nil {
		return s.error("ask for "+a.Addr().String(), e)
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return fmt.Errorf("ask for %s: %w", a.Addr(), context.Cause(ctx))
	}
}

// add gives the stack an address, and returns when it can be used.
func (s *Stack) add(ctx context.Context, a netip.Prefix) error {
	full, protocol := fullAddress(netip.AddrPortFrom(a.Addr(), 0))
	e := s.s.AddProtocolAddress(nic, gvisor.ProtocolAddress{Protocol: protocol,
		AddressWithPrefix: gvisor.AddressWithPrefix{Address: full.Addr, PrefixLen: a.Bits()}}, stack.AddressProperties{})
	if e != nil {
		return s.error("add "+a.String(), e)
	}
	for s.s.CheckLocalAddress(nic, protocol, full.Addr) == 0 { // netstack asks once more for one of IPv6
		if ctx.Err() != nil {
			return fmt.Errorf("add %s: %w", a, context.Cause(ctx))
		}
		time.Sleep(time.Millisecond)
	}
	s.routers.set(func(r *routers) { r.networks = append(r.networks, a.Masked()) })
	return nil
}

// remove takes an address away.
func (s *Stack) remove(a netip.Prefix) error {
	s.routers.set(func(r *routers) {
		r.networks = slices.DeleteFunc(r.networks, func(p netip.Prefix) bool { return p == a.Masked() })
	})
	if e := s.s.RemoveAddress(nic, gvisor.AddrFromSlice(a.Addr().AsSlice())); e != nil {
		return s.error("remove "+a.String(), e)
	}
	return nil
}

// routers are the routes of a stack: its own networks, the configured gateways, that of DHCP and those that router
// advertisements name. It is the stack's dispatcher of neighbour discovery, which must not call the stack: for it
// goroutines write the table.
type routers struct {
	stack    *stack.Stack
	writing  sync.Mutex // held while the table is made and written
	mu       sync.Mutex // guards what follows
	networks []netip.Prefix
	static   []netip.Addr
	leased   netip.Addr // of DHCP
	found    []gvisor.Route
	writers  sync.WaitGroup
}

// set changes the routes, which hold when it returns.
func (r *routers) set(f func(*routers)) {
	r.mu.Lock()
	f(r)
	r.mu.Unlock()
	r.write()
}

// write gives the stack the table.
func (r *routers) write() {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.stack.SetRouteTable(r.table())
}

// table makes the table: the longest prefixes first.
func (r *routers) table() []gvisor.Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	var table []gvisor.Route
	for _, p := range r.networks {
		table = append(table, gvisor.Route{Destination: subnet(p), NIC: nic})
	}
	for _, g := range append(slices.Clip(r.static), r.leased) {
		to := header.IPv6EmptySubnet
		if g.Is4() {
			to = header.IPv4EmptySubnet
		} else if !g.IsValid() {
			continue // nothing is leased
		}
		table = append(table, gvisor.Route{Destination: to, Gateway: gvisor.AddrFromSlice(g.AsSlice()), NIC: nic})
	}
	linkLocal, _ := gvisor.NewSubnet(header.IPv6LinkLocalPrefix.Address, gvisor.MaskFromBytes(net.CIDRMask(header.IPv6LinkLocalPrefix.PrefixLen, 128)))
	table = append(table, gvisor.Route{Destination: linkLocal, NIC: nic})
	table = append(table, r.found...)
	slices.SortStableFunc(table, func(a, b gvisor.Route) int { return b.Destination.Prefix() - a.Destination.Prefix() })
	return table
}

// subnet is a network in the stack's terms.
func subnet(p netip.Prefix) gvisor.Subnet {
	n, _ := gvisor.NewSubnet(gvisor.AddrFromSlice(p.Addr().AsSlice()), gvisor.MaskFromBytes(net.CIDRMask(p.Bits(), p.Addr().BitLen())))
	return n
}

// OnDuplicateAddressDetectionResult implements ipv6.NDPDispatcher.
func (r *routers) OnDuplicateAddressDetectionResult(gvisor.NICID, gvisor.Address, stack.DADResult) {}

// OnOffLinkRouteUpdated implements ipv6.NDPDispatcher: a router has said what is behind it.
func (r *routers) OnOffLinkRouteUpdated(_ gvisor.NICID, to gvisor.Subnet, by gvisor.Address, _ header.NDPRoutePreference) {
	r.find(gvisor.Route{Destination: to, Gateway: by, NIC: nic}, true)
}

// OnOffLinkRouteInvalidated implements ipv6.NDPDispatcher.
func (r *routers) OnOffLinkRouteInvalidated(_ gvisor.NICID, to gvisor.Subnet, by gvisor.Address) {
	r.find(gvisor.Route{Destination: to, Gateway: by, NIC: nic}, false)
}

// OnOnLinkPrefixDiscovered implements ipv6.NDPDispatcher.
func (r *routers) OnOnLinkPrefixDiscovered(_ gvisor.NICID, to gvisor.Subnet) {
	r.find(gvisor.Route{Destination: to, NIC: nic}, true)
}

// OnOnLinkPrefixInvalidated implements ipv6.NDPDispatcher.
func (r *routers) OnOnLinkPrefixInvalidated(_ gvisor.NICID, to gvisor.Subnet) {
	r.find(gvisor.Route{Destination: to, NIC: nic}, false)
}

// mostFound bounds the routes that router advertisements can make.
const mostFound = 64

// find adds or removes a route of a router advertisement.
func (r *routers) find(route gvisor.Route, there bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = slices.DeleteFunc(r.found, func(o gvisor.Route) bool {
		return o.Destination == route.Destination && o.Gateway == route.Gateway
	})
	if there && len(r.found) < mostFound {
		r.found = append(r.found, route)
	}
	r.writers.Go(r.write)
}

// OnAutoGenAddress implements ipv6.NDPDispatcher.
func (r *routers) OnAutoGenAddress(gvisor.NICID, gvisor.AddressWithPrefix) stack.AddressDispatcher {
	return nil
}

// OnAutoGenAddressDeprecated implements ipv6.NDPDispatcher.
func (r *routers) OnAutoGenAddressDeprecated(gvisor.NICID, gvisor.AddressWithPrefix) {}

// OnAutoGenAddressInvalidated implements ipv6.NDPDispatcher.
func (r *routers) OnAutoGenAddressInvalidated(gvisor.NICID, gvisor.AddressWithPrefix) {}

// OnRecursiveDNSServerOption implements ipv6.NDPDispatcher.
func (r *routers) OnRecursiveDNSServerOption(gvisor.NICID, []gvisor.Address, time.Duration) {}

// OnDNSSearchListOption implements ipv6.NDPDispatcher.
func (r *routers) OnDNSSearchListOption(gvisor.NICID, []string, time.Duration) {}

// OnDHCPv6Configuration implements ipv6.NDPDispatcher.
func (r *routers) OnDHCPv6Configuration(gvisor.NICID, ipv6.DHCPv6ConfigurationFromNDPRA) {}
