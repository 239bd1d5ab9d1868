package hostpci

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// kernelRoutes asks the kernel for the routes of all tables: proc shows those of
// IPv4's main table only, and rules can lead to others.
func kernelRoutes() ([]route, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	names := map[uint32]string{}
	for _, i := range interfaces {
		names[uint32(i.Index)] = i.Name
	}
	var list []route
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		dump, err := syscall.NetlinkRIB(unix.RTM_GETROUTE, family)
		if err != nil {
			return nil, fmt.Errorf("ask for the routes: %w", err)
		}
		some, err := parseRoutes(dump, names)
		if err != nil {
			return nil, fmt.Errorf("read the routes: %w", err)
		}
		list = append(list, some...)
	}
	return list, nil
}

// parseRoutes reads messages of rtnetlink (rtnetlink(7)) about routes that lead
// somewhere, but for those to link-local addresses. names are the interfaces, by
// index; routes over others are left out, as they went meanwhile.
func parseRoutes(dump []byte, names map[uint32]string) ([]route, error) {
	messages, err := syscall.ParseNetlinkMessage(dump)
	if err != nil {
		return nil, err
	}
	var list []route
	for _, m := range messages {
		// Family, length of the destination, 5 bytes more, type, flags.
		if m.Header.Type != unix.RTM_NEWROUTE || len(m.Data) < unix.SizeofRtMsg || m.Data[7] != unix.RTN_UNICAST {
			continue
		}
		// Package syscall reads past an attribute at the end that has no padding.
		m.Data = append(slices.Clip(m.Data), make([]byte, -len(m.Data)&3)...)
		attributes, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return nil, err
		}
		to := netip.IPv4Unspecified()
		if m.Data[0] == unix.AF_INET6 {
			to = netip.IPv6Unspecified()
		}
		var over []uint32
		for _, a := range attributes {
			switch a.Attr.Type {
			case unix.RTA_DST:
				if dst, ok := netip.AddrFromSlice(a.Value); ok {
					to = dst
				}
			case unix.RTA_OIF:
				if len(a.Value) == 4 {
					over = append(over, binary.NativeEndian.Uint32(a.Value))
				}
			case unix.RTA_MULTIPATH:
				over = append(over, nextHops(a.Value)...)
			}
		}
		prefix, err := to.Prefix(int(m.Data[1]))
		if err != nil {
			return nil, err
		}
		if to.IsLinkLocalUnicast() && to.Is6() {
			continue
		}
		for _, index := range over {
			if name, ok := names[index]; ok {
				list = append(list, route{to: prefix, netdev: name})
			}
		}
	}
	return list, nil
}

// nextHops reads the interfaces of a route with several (struct rtnexthop): length,
// 2 bytes more, index of the interface, attributes.
func nextHops(b []byte) (over []uint32) {
	for len(b) >= unix.SizeofRtNexthop {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofRtNexthop {
			return over
		}
		over = append(over, binary.NativeEndian.Uint32(b[4:]))
		b = b[min((length+3)&^3, len(b)):]
	}
	return over
}
