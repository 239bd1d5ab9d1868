package hostpci

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// TestNextHopObjects: a route over a group of next hops may lead over any interface, where the kernel names the group only.
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
	must.OK(t, os.WriteFile("/proc/sys/net/ipv4/nexthop_compat_mode", []byte("0"), 0))
	all := must.Get(kernelRoutes())(t)
	if got := outFor(all, netip.MustParseAddr("198.51.100.9")); !slices.Contains(got, "one") || !slices.Contains(got, "two") {
		t.Errorf("over %q", got)
	}
}

// TestKernelRoutes: what proc shows of this host is part of what the kernel says.
func TestKernelRoutes(t *testing.T) {
	all := must.Get(kernelRoutes())(t)
	// A root that is this host's and does not look like it.
	root := t.TempDir() + "/root"
	must.OK(t, os.Symlink("/", root))
	shown := must.Get(readRoutes(Root(root)))(t)
	for _, r := range shown {
		if !slices.Contains(all, r) {
			t.Errorf("%v is not among %v", r, all)
		}
	}
}
