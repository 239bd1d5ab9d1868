package framescmd_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/trapeze-nic/trapeze/internal/command"
)

// inNamespace is set in the process of TestForwardTCP, which has a network namespace of its
// own.
const inNamespace = "TRAPEZE_TEST_NAMESPACE"

// TestForwardTCP: two Linux hosts talk TCP through forward over AF_XDP once they have done
// what forward says at its start.
func TestForwardTCP(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		ctx, cancel := context.WithTimeout(t.Context(), 2*timeout)
		defer cancel()
		c := exec.CommandContext(ctx, "/proc/self/exe", "-test.run=^TestForwardTCP$", "-test.v")
		c.Env = append(os.Environ(), inNamespace+"=1")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		said, err := c.CombinedOutput()
		switch {
		case c.ProcessState == nil:
			t.Skipf("it needs a network namespace (%v): run as root", err)
		case err != nil:
			t.Fatalf("%v\n%s", err, said)
		}
		return
	}
	for _, mtu := range []int{1500, 9000} {
		t.Run(fmt.Sprint(mtu), func(t *testing.T) { forwardTCP(t, mtu) })
	}
}

func forwardTCP(t *testing.T, mtu int) {
	server := newStation(t, "port1", "host1", "10.9.0.1/24", mtu)
	client := newStation(t, "port2", "host2", "10.9.0.2/24", mtu)
	forward := startEnv(t, command.Env{}, "forward", "--mtu", fmt.Sprint(mtu), "--device", "afxdp:port1", "--device", "afxdp:port2")
	for deadline := time.Now().Add(timeout); !strings.Contains(forward.stderr.String(), "passing frames"); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it has not begun: %s", forward.stderr.String())
		}
	}
	for _, port := range []string{"port1", "port2"} {
		if !strings.Contains(forward.stderr.String(), "ethtool -K PEER tx off, where PEER is the peer of "+port) {
			t.Errorf("%s: it said %s", port, forward.stderr.String())
		}
	}
	var listener net.Listener
	server.do(t, func() (err error) {
		listener, err = net.Listen("tcp", "10.9.0.1:7")
		return err
	})
	defer listener.Close()
	client.do(t, func() error {
		if c, err := net.DialTimeout("tcp", "10.9.0.1:7", 300*time.Millisecond); err == nil {
			c.Close()
			t.Error("frames without checksums pass: the warning is needless")
		}
		return nil
	})
	server.do(t, func() error { return computeSums("host1") })
	client.do(t, func() error { return computeSums("host2") })
	want := make([]byte, 4<<20)
	_, _ = rand.Read(want)
	answered := make(chan error, 1)
	go func() { // echoes
		c, err := listener.Accept()
		if err == nil {
			defer c.Close()
			_, err = io.Copy(c, c)
		}
		answered <- err
	}()
	var c net.Conn
	client.do(t, func() (err error) {
		c, err = net.DialTimeout("tcp", "10.9.0.1:7", timeout)
		return err
	})
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(timeout))
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(want)
		sent <- err
	}()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("what comes back is not what was sent: %v", err)
	}
	c.Close()
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
	forward.stop()
	if err := forward.wait(); err != nil {
		t.Error(err)
	}
	// Long segments passed as they are: no frame of an MTU of 1500 is longer than 1514.
	var frames, octets int
	for line := range strings.Lines(forward.stdout.String()) {
		if n, _ := fmt.Sscanf(line, "received %d frames of %d bytes", &frames, &octets); n == 2 {
			break
		}
	}
	if frames == 0 || octets/frames < mtu/6+15 {
		t.Errorf("%d frames of %d bytes have passed: %s", frames, octets, forward.stdout.String())
	}
}

// station is a network namespace with a Linux host, whose interface is wired to a port here.
type station struct{ namespace netns.NsHandle }

// newStation makes a station whose interface is name, with an address, and the port.
func newStation(t *testing.T, port, name, address string, mtu int) *station {
	t.Helper()
	s := new(station)
	made := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		var err error
		s.namespace, err = netns.New()
		made <- err
	}()
	if err := <-made; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.namespace.Close() })
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MTU = port, mtu
	veth := &netlink.Veth{LinkAttrs: attributes, PeerName: name, PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(s.namespace)}
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	if err := netlink.LinkSetUp(veth); err != nil {
		t.Fatal(err)
	}
	s.do(t, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		a, err := netlink.ParseAddr(address)
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
	return s
}

// do runs f in the station's namespace.
func (s *station) do(t *testing.T, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked
		err := netns.Set(s.namespace)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
