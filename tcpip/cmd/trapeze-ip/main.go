// Command trapeze-ip uses TCP/IP on a NIC that it drives itself.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	_ "github.com/trapeze-nic/trapeze/emulator" // NICs for --device ring:
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/tcpip"
	_ "github.com/trapeze-nic/trapeze/vfio/kernel" // pci:
	"github.com/trapeze-nic/trapeze/via"
)

func main() {
	if os.Getenv("GOMAXPROCS") == "" { // the kernel and the other end take the other cores: threads that wake for each packet cost more than they do
		runtime.GOMAXPROCS(max(1, runtime.NumCPU()/2))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "trapeze-ip:", err)
		os.Exit(1)
	}
}

// options are the flags of all commands.
type options struct {
	device      string
	address     netip.Prefix
	peer        string // the ring's other end
	gateway     []net.IP
	dns         []net.IP
	mtu, queues int
	kernel      bool
}

func command() *cobra.Command {
	o := &options{}
	root := &cobra.Command{Use: "trapeze-ip", Short: "TCP/IP on a NIC that this program drives itself",
		Long: `TCP/IP on a NIC that this program drives itself: no packet passes the kernel's network.

Without --address the NIC asks DHCP for one, and takes IPv6 addresses from router advertisements.`,
		Example: `  trapeze-ip ping --device afxdp:eth0 --address 10.0.0.2/24 10.0.0.1
  trapeze-ip serve --device pci:0000:03:00.0 --address 10.0.0.2/24 ./public
  trapeze-ip get --device afxdp:eth0 http://example.org/
  trapeze-ip bench listen --device afxdp:eth0 --address 10.0.0.2/24
  trapeze-ip serve --device 'ring:emu:?wire=shm:/tmp/ip' --address 10.0.0.2/24 ./public      # prints the --peer of the other end`,
		SilenceUsage: true, SilenceErrors: true}
	f := root.PersistentFlags()
	f.StringVar(&o.device, "device", "", "port of the NIC, as pci:0000:03:00.0, afxdp:eth0 or vhost-user:/run/port.sock, or ring: with the address of a Trapeze NIC")
	f.StringVar(&o.peer, "peer", "", "other end of a ring; without one this end waits for it, and prints its own address")
	f.TextVar(&o.address, "address", netip.Prefix{}, "own `address` with the prefix of its network, as 10.0.0.2/24; without one DHCP is asked")
	f.IPSliceVar(&o.gateway, "gateway", nil, "router for what is in no network of its own")
	f.IPSliceVar(&o.dns, "dns", nil, "servers that names are asked of")
	f.IntVar(&o.mtu, "mtu", 1500, "longest IP packet in bytes")
	f.IntVar(&o.queues, "queues", 1, "queues of the port, each with a goroutine")
	f.BoolVar(&o.kernel, "kernel", false, "use the kernel's network in place of a NIC, to compare")
	root.MarkFlagsMutuallyExclusive("kernel", "device")
	root.AddCommand(pingCommand(o), serveCommand(o), getCommand(o), benchCommand(o), forwardCommand(o))
	return root
}

// network are the functions of net that the commands use.
type network interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
	Listen(network, address string) (net.Listener, error)
}

// kernel is Linux' own network.
type kernel struct{ net.Dialer }

func (kernel) Listen(network, address string) (net.Listener, error) {
	return net.Listen(network, address)
}

// with calls f with the NIC's stack, or with what --kernel puts in its place.
func (o *options) with(ctx context.Context, f func(network) error) error {
	if o.kernel {
		return f(&kernel{})
	}
	return o.withStack(ctx, func(s *tcpip.Stack) error {
		if o.peer != "" {
			return f(patient{s})
		}
		return f(s)
	})
}

// withStack opens the NIC and calls f with its stack.
func (o *options) withStack(ctx context.Context, f func(*tcpip.Stack) error) error {
	if o.device == "" {
		return errors.New("--device is required: the port of a NIC, as afxdp:eth0")
	}
	c := tcpip.Config{MTU: o.mtu, Queues: o.queues, Gateways: addresses(o.gateway), DNS: addresses(o.dns)}
	if o.address.IsValid() {
		c.Addresses = []netip.Prefix{o.address}
	}
	if device, is := strings.CutPrefix(o.device, "ring:"); is {
		return overRing(ctx, device, o.peer, c, f)
	}
	s, err := tcpip.Open(ctx, o.device, c)
	if err != nil {
		return err
	}
	return errors.Join(f(s), s.Close())
}

// overRing calls f with a stack over a ring of a Trapeze NIC.
func overRing(ctx context.Context, device, peer string, c tcpip.Config, f func(*tcpip.Stack) error) (err error) {
	n, err := via.Open(ctx, device, via.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Close()) }()
	o := ring.Options{Entries: 256, Reliability: via.ReliableDelivery}
	var r *ring.Ring
	if peer != "" {
		r, err = ring.Dial(ctx, n, peer, o)
	} else {
		var l *ring.Listener
		if l, err = ring.Listen(n, "ip", o); err == nil {
			fmt.Fprintf(os.Stderr, "waiting for the other end: --peer %s\n", l.Address())
			r, err = l.Accept(ctx)
			err = errors.Join(err, l.Close())
		}
	}
	if err != nil {
		return err
	}
	c.MTU = 0 // the ring's own
	s, err := tcpip.OnRing(ctx, n, r, c)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	return errors.Join(f(s), s.Close())
}

// patient are the functions of a stack whose other end may have begun a moment ago and not listen yet.
type patient struct{ *tcpip.Stack }

func (p patient) DialContext(ctx context.Context, network, address string) (c net.Conn, err error) {
	for range 20 {
		if c, err = p.Stack.DialContext(ctx, network, address); err == nil || !strings.Contains(err.Error(), "refused") {
			return c, err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, err
}

func addresses(all []net.IP) (list []netip.Addr) {
	for _, ip := range all {
		a, _ := netip.AddrFromSlice(ip)
		list = append(list, a.Unmap())
	}
	return list
}

// accept hands connections over, each to a goroutine, and closes them when take returns or ctx ends.
func accept(ctx context.Context, l net.Listener, take func(net.Conn)) error {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	var open sync.WaitGroup
	defer open.Wait()
	for {
		c, err := l.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		open.Go(func() {
			defer c.Close()
			defer context.AfterFunc(ctx, func() { _ = c.Close() })()
			take(c)
		})
	}
}

func pingCommand(o *options) *cobra.Command {
	var count, size int
	c := &cobra.Command{Use: "ping HOST", Short: "Send echo requests", Args: cobra.ExactArgs(1),
		Example: "  trapeze-ip ping --device afxdp:eth0 --address 10.0.0.2/24 --count 3 10.0.0.1",
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withStack(cmd.Context(), func(s *tcpip.Stack) error { return ping(cmd.Context(), s, args[0], count, size) })
		}}
	c.Flags().IntVar(&count, "count", 4, "echo requests")
	c.Flags().IntVar(&size, "size", 56, "bytes of payload, 0 to 65000")
	return c
}

// ping sends echo requests to a host, and prints what becomes of each.
func ping(ctx context.Context, s *tcpip.Stack, host string, count, size int) error {
	to, err := netip.ParseAddr(host)
	if err != nil {
		all, err := s.Resolver().LookupNetIP(ctx, "ip", host)
		if err != nil {
			return err
		}
		to = all[0]
	}
	lost := 0
	for n := range count {
		one, cancel := context.WithTimeout(ctx, time.Second)
		took, err := s.Ping(one, to, size)
		cancel()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			lost++
			fmt.Printf("%d: %v\n", n+1, err)
		} else {
			fmt.Printf("%d: %d bytes from %s in %v\n", n+1, size, to, took.Round(time.Microsecond/10))
		}
		if n+1 < count {
			time.Sleep(200 * time.Millisecond)
		}
	}
	if lost == count {
		return fmt.Errorf("%s does not answer", host)
	}
	return nil
}
