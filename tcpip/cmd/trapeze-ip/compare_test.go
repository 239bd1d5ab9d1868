package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	gvisor "gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"
	"gvisor.dev/gvisor/pkg/tcpip/link/fdbased"
	"gvisor.dev/gvisor/pkg/tcpip/network/arp"
	"gvisor.dev/gvisor/pkg/tcpip/network/ipv4"
	"gvisor.dev/gvisor/pkg/tcpip/stack"
	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// asProgram says in the environment that this binary is to be trapeze-ip, on gVisor's own link to the interface that it names, or
// on what the arguments say if it is empty.
const asProgram = "TRAPEZE_IP_LINK"

func TestMain(m *testing.M) {
	link, is := os.LookupEnv(asProgram)
	if !is {
		os.Exit(m.Run())
	}
	if link == "" {
		main()
		os.Exit(0)
	}
	if err := overPackets(link, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// packets is netstack on a packet socket by gVisor's fdbased, as gVisor's sandbox has it.
type packets struct{ s *stack.Stack }

func (p packets) DialContext(ctx context.Context, _, address string) (net.Conn, error) {
	to := netip.MustParseAddrPort(address)
	return gonet.DialContextTCP(ctx, p.s, gvisor.FullAddress{NIC: 1, Addr: gvisor.AddrFromSlice(to.Addr().AsSlice()), Port: to.Port()}, ipv4.ProtocolNumber)
}

func (p packets) Listen(string, string) (net.Listener, error) { return nil, errors.ErrUnsupported }

// overPackets measures to a host, and prints what bench to prints.
func overPackets(name, to string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	i, err := net.InterfaceByName(name)
	if err != nil {
		return err
	}
	const all = 0x0300 // ETH_P_ALL in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK, all)
	if err != nil {
		return err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: i.Index}); err != nil {
		return err
	}
	link, err := fdbased.New(&fdbased.Options{FDs: []int{fd}, MTU: uint32(i.MTU), EthernetHeader: true, Address: gvisor.LinkAddress(i.HardwareAddr),
		PacketDispatchMode: fdbased.PacketMMap})
	if err != nil {
		return err
	}
	s := stack.New(stack.Options{NetworkProtocols: []stack.NetworkProtocolFactory{arp.NewProtocol, ipv4.NewProtocol},
		TransportProtocols: []stack.TransportProtocolFactory{tcp.NewProtocol}})
	if e := s.CreateNIC(1, link); e != nil {
		return errors.New(e.String())
	}
	own := gvisor.AddrFromSlice([]byte{10, 9, 0, 2}).WithPrefix()
	own.PrefixLen = 24
	if e := s.AddProtocolAddress(1, gvisor.ProtocolAddress{Protocol: ipv4.ProtocolNumber, AddressWithPrefix: own}, stack.AddressProperties{}); e != nil {
		return errors.New(e.String())
	}
	s.SetRouteTable([]gvisor.Route{{Destination: own.Subnet(), NIC: 1}})
	r, err := measure(ctx, packets{s}, to, 2*time.Second, 64<<10, 64)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// space runs this binary as trapeze-ip in a network namespace, on a core of its own.
func space(name, core, link string, args ...string) *exec.Cmd {
	c := exec.Command("ip", append([]string{"netns", "exec", name, "taskset", "-c", core, os.Args[0]}, args...)...)
	c.Env = append(os.Environ(), asProgram+"="+link)
	return c
}

// BenchmarkCompare measures one end of a veth pair, whose other end is Linux': Linux itself, with segments that are never cut and
// without, ours by AF_XDP, and netstack by gVisor's own link. Each end has one core: on a core that both share
// a reply of Linux takes an eighth of the time, but no network has that. All in turns, once for each b.N.
func BenchmarkCompare(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("network namespaces and AF_XDP take root")
	}
	run := func(name string, args ...string) {
		if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
			b.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
	}
	x, y := fmt.Sprintf("ipa%d", os.Getpid()), fmt.Sprintf("ipb%d", os.Getpid())
	for _, n := range []string{x, y} {
		run("ip", "netns", "add", n)
		b.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n).Run() })
	}
	run("ip", "link", "add", "va", "netns", x, "type", "veth", "peer", "name", "vb", "netns", y)
	for _, one := range [][2]string{{x, "va"}, {y, "vb"}} {
		run("ip", "-n", one[0], "link", "set", one[1], "up")
	}
	run("ip", "-n", y, "addr", "add", "10.9.0.1/24", "dev", "vb")
	other := space(y, "1", "", "bench", "listen", "--kernel")
	must.OK(b, other.Start())
	b.Cleanup(func() {
		_ = other.Process.Signal(os.Interrupt)
		_ = other.Wait()
	})
	offloads := func(state string) {
		run("ip", "netns", "exec", x, "ethtool", "-K", "va", "tx", state, "tso", state, "gso", state, "gro", state)
		run("ip", "netns", "exec", y, "ethtool", "-K", "vb", "tx", state, "tso", state, "gso", state, "gro", state)
	}
	to := []string{"bench", "to", "--json", "10.9.0.1:5201"}
	ends := []struct {
		name, offloads, own, link string
		args                      []string
	}{
		{"linux", "on", "add", "", append(to, "--kernel")},
		{"linux-cut", "off", "add", "", append(to, "--kernel")},
		{"trapeze", "off", "del", "", append(to, "--device", "afxdp:va", "--address", "10.9.0.2/24")},
		{"fdbased", "off", "del", "va", []string{"10.9.0.1:5201"}},
	}
	has := false // whether Linux has this end's address
	for b.Loop() {
		for _, e := range ends {
			offloads(e.offloads)
			if add := e.own == "add"; add != has {
				run("ip", "-n", x, "addr", e.own, "10.9.0.2/24", "dev", "va")
				has = add
			}
			c := space(x, "0", e.link, e.args...)
			var said bytes.Buffer
			c.Stderr = &said
			out, err := c.Output()
			var r benchReport
			if err = errors.Join(err, json.Unmarshal(out, &r)); err != nil {
				b.Fatalf("%s: %v\n%s", e.name, err, &said)
			}
			b.Logf("%-10s stream %6.0f MB/s, reply p50 %6.1f us, p99 %6.1f us", e.name, r.StreamMBs, r.P50us, r.P99us)
		}
	}
}
