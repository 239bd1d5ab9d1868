package hostpci

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// message is what the kernel says about one route.
func message(family, bits, kind byte, attributes ...[]byte) []byte {
	b := make([]byte, unix.SizeofNlMsghdr+unix.SizeofRtMsg)
	for _, a := range attributes {
		b = append(b, a...)
	}
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_NEWROUTE)
	b[16], b[17], b[23] = family, bits, kind
	return b
}

func attribute(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = append(binary.NativeEndian.AppendUint16(b, kind), value...)
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}

func index(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// hop is a next hop over an interface.
func hop(n uint32) []byte {
	gateway := attribute(unix.RTA_GATEWAY, 192, 0, 2, 1)
	b := binary.NativeEndian.AppendUint16(nil, uint16(8+len(gateway)))
	return append(append(append(b, 0, 0), index(n)...), gateway...)
}

var interfaces = map[uint32]string{2: "ens1", 3: "ens2"}

func TestParseRoutes(t *testing.T) {
	table := attribute(unix.RTA_TABLE, 77, 0, 0, 0)
	for name, c := range map[string]struct {
		message []byte
		want    []route
	}{
		"default, another table": {message(unix.AF_INET, 0, unix.RTN_UNICAST, table, attribute(unix.RTA_OIF, index(2)...)),
			[]route{{netip.MustParsePrefix("0.0.0.0/0"), "ens1"}}},
		"default of IPv6": {message(unix.AF_INET6, 0, unix.RTN_UNICAST, attribute(unix.RTA_OIF, index(3)...)),
			[]route{{netip.MustParsePrefix("::/0"), "ens2"}}},
		"several next hops": {message(unix.AF_INET, 24, unix.RTN_UNICAST, attribute(unix.RTA_DST, 198, 51, 100, 0), attribute(unix.RTA_MULTIPATH, slices.Concat(hop(2), hop(3))...)),
			[]route{{netip.MustParsePrefix("198.51.100.0/24"), "ens1"}, {netip.MustParsePrefix("198.51.100.0/24"), "ens2"}}},
		"next hop object": {message(unix.AF_INET, 24, unix.RTN_UNICAST, attribute(unix.RTA_DST, 198, 51, 100, 0), attribute(attributeNextHop, index(7)...)),
			[]route{{netip.MustParsePrefix("198.51.100.0/24"), "ens1"}, {netip.MustParsePrefix("198.51.100.0/24"), "ens2"}}},
		"local":                {message(unix.AF_INET, 32, unix.RTN_LOCAL, attribute(unix.RTA_DST, 192, 0, 2, 2), attribute(unix.RTA_OIF, index(2)...)), nil},
		"link-local":           {message(unix.AF_INET6, 64, unix.RTN_UNICAST, attribute(unix.RTA_DST, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), attribute(unix.RTA_OIF, index(2)...)), nil},
		"interface that went":  {message(unix.AF_INET, 0, unix.RTN_UNICAST, attribute(unix.RTA_OIF, index(9)...)), nil},
		"next hop of no bytes": {message(unix.AF_INET, 0, unix.RTN_UNICAST, attribute(unix.RTA_MULTIPATH, make([]byte, 16)...)), nil},
	} {
		got, err := parseRoutes(c.message, interfaces, map[uint32][]uint32{7: {2, 3}})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func FuzzParseRoutes(f *testing.F) {
	f.Add(message(unix.AF_INET, 24, unix.RTN_UNICAST, attribute(unix.RTA_DST, 198, 51, 100, 0), attribute(unix.RTA_MULTIPATH, slices.Concat(hop(2), hop(3))...)))
	f.Add(message(unix.AF_INET6, 129, unix.RTN_UNICAST, attribute(unix.RTA_OIF, index(2)...)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if list, err := parseRoutes(b, interfaces, nil); err != nil && list != nil {
			t.Errorf("%v with error %v", list, err)
		}
	})
}

func FuzzParseNextHops(f *testing.F) {
	f.Add(message(unix.AF_INET, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		if hops, err := parseNextHops(b); err != nil && hops != nil {
			t.Errorf("%v with error %v", hops, err)
		}
	})
}

// TestNextHopObjects: a route over a group of next hops leads over all of them, where the kernel names the group only.
func TestNextHopObjects(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	if os.Getenv("TRAPEZE_TEST_NAMESPACE") == "" {
		c := exec.Command(os.Args[0], "-test.run=^TestNextHopObjects$", "-test.v")
		c.Env = append(os.Environ(), "TRAPEZE_TEST_NAMESPACE=1")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		if out, err := c.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	ip := func(args string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	for i, name := range []string{"one", "two"} {
		ip("link add " + name + " type veth peer " + name + "peer")
		ip("link set " + name + "peer up")
		ip(fmt.Sprintf("addr add 192.0.2.%d/25 dev %s", 1+128*i, name))
		ip("link set " + name + " up")
		ip(fmt.Sprintf("nexthop add id %d via 192.0.2.%d dev %s", 1+i, 2+128*i, name))
	}
	ip("nexthop add id 3 group 1/2")
	ip("route add 198.51.100.0/24 nhid 3")
	if err := os.WriteFile("/proc/sys/net/ipv4/nexthop_compat_mode", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	all, err := kernelRoutes()
	if err != nil {
		t.Fatal(err)
	}
	if got := outFor(all, netip.MustParseAddr("198.51.100.9")); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("over %q", got)
	}
}

// TestKernelRoutes: what proc shows of this host is part of what the kernel says.
func TestKernelRoutes(t *testing.T) {
	all, err := kernelRoutes()
	if err != nil {
		t.Fatal(err)
	}
	// A root that is this host's and does not look like it.
	root := t.TempDir() + "/root"
	if err := os.Symlink("/", root); err != nil {
		t.Fatal(err)
	}
	shown, err := readRoutes(Root(root))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range shown {
		if !slices.Contains(all, r) {
			t.Errorf("%v is not among %v", r, all)
		}
	}
}
