package hostpci

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// kernelRoutes asks the kernel for the unicast routes of all tables, those to link-local addresses of IPv6 aside: rules can
// lead to other tables than the main one. A route that names a next hop object and no interface may lead over each.
func kernelRoutes() ([]route, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []route
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_UNSPEC, Type: unix.RTN_UNICAST},
			netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
		if err != nil {
			return nil, fmt.Errorf("ask for the routes: %w", err)
		}
		for _, r := range routes {
			to := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
			if family == netlink.FAMILY_V6 {
				to = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
			}
			if r.Dst != nil {
				if to, err = netip.ParsePrefix(r.Dst.String()); err != nil {
					return nil, err
				}
			}
			if to.Addr().IsLinkLocalUnicast() && to.Addr().Is6() {
				continue
			}
			for _, i := range interfaces {
				over := r.LinkIndex == i.Index || r.LinkIndex == 0 && len(r.MultiPath) == 0
				for _, hop := range r.MultiPath {
					over = over || hop.LinkIndex == i.Index
				}
				if over {
					list = append(list, route{to: to, netdev: i.Name})
				}
			}
		}
	}
	return list, nil
}

// kernelAddresses lists the addresses that an interface of this host was given: not those of IPv6 that it has unasked.
func kernelAddresses(netdev string) (list []string, err error) {
	i, err := net.InterfaceByName(netdev)
	if err != nil {
		return nil, err
	}
	addresses, err := i.Addrs()
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !(p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()) {
			list = append(list, p.Addr().String())
		}
	}
	return list, err
}
