package hostpci

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// route flags (linux/route.h, linux/ipv6_route.h).
const (
	routeUp     = 0x0001
	routeReject = 0x0200
	routeLocal  = 0x80000000
)

// route is an entry of one of the kernel's routing tables.
type route struct {
	to     netip.Prefix
	netdev string
}

// readRoutes reads the routes of both families that lead somewhere: on this host those of all tables, of another
// one those that proc has shown. Those that every IPv6 interface has unasked, to link-local and multicast
// addresses, are left out. A kernel without a family has none of its.
func readRoutes(r Root) ([]route, error) {
	if r.Live() {
		return kernelRoutes()
	}
	var list []route
	for _, table := range []struct {
		file  string
		parse func(line string) (route, bool, error)
	}{{"proc/net/route", parseRoute4}, {"proc/net/ipv6_route", parseRoute6}} {
		text, err := r.Text(table.file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "Iface") {
				continue
			}
			e, ok, err := table.parse(line)
			if err != nil {
				return nil, fmt.Errorf("%s: %q: %w", table.file, strings.TrimSpace(line), err)
			}
			if ok {
				list = append(list, e)
			}
		}
	}
	return list, nil
}

// parseRoute4 reads a line of proc/net/route: interface, destination, gateway, flags, 3 counters, mask; addresses are in the
// processor's byte order.
func parseRoute4(line string) (e route, leads bool, err error) {
	var to, gateway, flags, count, mask uint32
	_, err = fmt.Sscanf(line, "%s %x %x %x %d %d %d %x", &e.netdev, &to, &gateway, &flags, &count, &count, &count, &mask)
	e.to = netip.PrefixFrom(netip.AddrFrom4([4]byte(binary.NativeEndian.AppendUint32(nil, to))), bits.OnesCount32(mask))
	return e, flags&routeUp != 0 && flags&routeReject == 0, err
}

// parseRoute6 reads a line of proc/net/ipv6_route: destination, its length, source, its length, next hop, metric, 2 counters,
// flags, interface.
func parseRoute6(line string) (e route, leads bool, err error) {
	var to, from, hop string
	var length, count, flags uint32
	_, err = fmt.Sscanf(line, "%s %x %s %x %s %x %x %x %x %s", &to, &length, &from, &count, &hop, &count, &count, &count, &flags, &e.netdev)
	if err != nil {
		return e, false, err
	}
	a, err := hexAddress(to)
	if e.to = netip.PrefixFrom(a, int(length)); err == nil && !e.to.IsValid() {
		err = fmt.Errorf("prefix length %d", length)
	}
	return e, flags&routeUp != 0 && flags&(routeReject|routeLocal) == 0 && !a.IsLinkLocalUnicast() && !a.IsMulticast(), err
}

func hexAddress(s string) (netip.Addr, error) {
	b, err := hex.DecodeString(s)
	if err != nil {
		return netip.Addr{}, err
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok {
		return a, fmt.Errorf("an address of %d bytes", len(b))
	}
	return a, nil
}

// outFor lists the interfaces over which the tables reach an address: of the routes
// with the longest prefix, whatever their metric.
func outFor(routes []route, to netip.Addr) []string {
	longest := -1
	var over []string
	for _, e := range routes {
		if !e.to.Contains(to.Unmap()) || e.to.Bits() < longest {
			continue
		}
		if e.to.Bits() > longest {
			longest, over = e.to.Bits(), nil
		}
		over = append(over, e.netdev)
	}
	slices.Sort(over)
	return slices.Compact(over)
}

// scopeLink is the scope of IPv6 addresses that are valid on a link only
// (linux/ipv6.h). Each interface has one without being asked.
const scopeLink = 0x20

// addressesOf lists the addresses of an interface that were given to it. Proc of another host
// shows IPv6 ones only: an IPv4 address shows by its route.
func addressesOf(r Root, netdev string) ([]string, error) {
	if r.Live() {
		return kernelAddresses(netdev)
	}
	var list []string
	text, err := r.Text("proc/net/if_inet6")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 6 || f[5] != netdev {
			continue
		}
		scope, err := strconv.ParseUint(f[3], 16, 8)
		if err != nil {
			return nil, fmt.Errorf("proc/net/if_inet6: %w", err)
		}
		a, err := hexAddress(f[0])
		if err != nil {
			return nil, fmt.Errorf("proc/net/if_inet6: %w", err)
		}
		if scope != scopeLink {
			list = append(list, a.String())
		}
	}
	return list, nil
}
