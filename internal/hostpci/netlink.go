package hostpci

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributeNextHop is RTA_NH_ID of linux/rtnetlink.h.
const attributeNextHop = 30

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
	objects, err := dump(unix.RTM_GETNEXTHOP, unix.AF_UNSPEC, unix.SizeofNhmsg)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) { // Linux before 5.3
		return nil, fmt.Errorf("ask for the next hops: %w", err)
	}
	hops, err := parseNextHops(objects)
	if err != nil {
		return nil, fmt.Errorf("read the next hops: %w", err)
	}
	var list []route
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		routes, err := dump(unix.RTM_GETROUTE, family, unix.SizeofRtMsg)
		if err != nil {
			return nil, fmt.Errorf("ask for the routes: %w", err)
		}
		some, err := parseRoutes(routes, names, hops)
		if err != nil {
			return nil, fmt.Errorf("read the routes: %w", err)
		}
		list = append(list, some...)
	}
	return list, nil
}

// dump returns the messages in which the kernel lists all objects of a kind, to a request of which the header is size
// bytes and begins with the family. syscall.NetlinkRIB sends one byte, which is too short for next hops.
func dump(kind uint16, family byte, size int) (list []byte, err error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s)
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return nil, err
	}
	b := make([]byte, unix.SizeofNlMsghdr+size, 1<<16) // the kernel's answers are 32 KiB at most
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], kind)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b[unix.SizeofNlMsghdr] = family
	if err := unix.Sendto(s, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	for {
		n, _, err := unix.Recvfrom(s, b[:cap(b)], 0)
		if err != nil {
			return nil, err
		}
		messages, err := syscall.ParseNetlinkMessage(b[:n])
		if err != nil {
			return nil, err
		}
		list = append(list, b[:n]...)
		for _, m := range messages {
			switch {
			case m.Header.Type == unix.NLMSG_DONE:
				return list, nil
			case m.Header.Type == unix.NLMSG_ERROR && len(m.Data) >= 4:
				return nil, unix.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
			}
		}
	}
}

// attributesOf reads those behind the header of a message as the kernel sends it.
func attributesOf(m syscall.NetlinkMessage) ([]syscall.NetlinkRouteAttr, error) {
	// Package syscall reads past an attribute at the end that has no padding.
	m.Data = append(slices.Clip(m.Data), make([]byte, -len(m.Data)&3)...)
	if m.Header.Type == unix.RTM_NEWNEXTHOP {
		m.Header.Type = unix.RTM_NEWADDR // package syscall does not know next hops; their header is as long
	}
	return syscall.ParseNetlinkRouteAttr(&m)
}

// parseNextHops reads messages about next hops (linux/nexthop.h): the interfaces over which each leads, by its number. A
// group leads over those of its members, each of which has 8 bytes that begin with its number.
func parseNextHops(dump []byte) (map[uint32][]uint32, error) {
	messages, err := syscall.ParseNetlinkMessage(dump)
	if err != nil {
		return nil, err
	}
	over, groups := map[uint32][]uint32{}, map[uint32][]byte{}
	for _, m := range messages {
		if m.Header.Type != unix.RTM_NEWNEXTHOP || len(m.Data) < unix.SizeofNhmsg {
			continue
		}
		attributes, err := attributesOf(m)
		if err != nil {
			return nil, err
		}
		var id uint32
		for _, a := range attributes {
			switch {
			case a.Attr.Type == unix.NHA_GROUP:
				groups[id] = a.Value
			case len(a.Value) != 4:
			case a.Attr.Type == unix.NHA_ID: // the first
				id = binary.NativeEndian.Uint32(a.Value)
			case a.Attr.Type == unix.NHA_OIF:
				over[id] = append(over[id], binary.NativeEndian.Uint32(a.Value))
			}
		}
	}
	for id, members := range groups {
		for ; len(members) >= 8; members = members[8:] {
			over[id] = append(over[id], over[binary.NativeEndian.Uint32(members)]...)
		}
	}
	return over, nil
}

// parseRoutes reads messages of rtnetlink (rtnetlink(7)) about routes that lead
// somewhere, but for those to link-local addresses. names are the interfaces, by
// index; routes over others are left out, as they went meanwhile. hops are the interfaces of next hops, by number.
func parseRoutes(dump []byte, names map[uint32]string, hops map[uint32][]uint32) ([]route, error) {
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
		attributes, err := attributesOf(m)
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
			case attributeNextHop: // without RTA_OIF or RTA_MULTIPATH if net.ipv4.nexthop_compat_mode is 0
				if len(a.Value) == 4 {
					over = append(over, hops[binary.NativeEndian.Uint32(a.Value)]...)
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
