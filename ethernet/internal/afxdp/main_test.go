package afxdp_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/afxdp"
)

// timeout ends tests that do not end by themselves.
const timeout = time.Minute

// quiet keeps what the tests provoke out of their output.
var quiet = slog.New(slog.DiscardHandler)

// inNamespace is set in the process that has a network namespace of its own.
const inNamespace = "TRAPEZE_TEST_NAMESPACE"

// noNamespace is why there is none; empty if there is.
var noNamespace string

// TestMain runs the tests in a process with a network namespace of its own, whose
// interfaces are gone with it.
func TestMain(m *testing.M) {
	if name := os.Getenv(holderVariable); name != "" {
		holder(name)
		os.Exit(0)
	}
	if os.Getenv(inNamespace) == "" && os.Getenv(nicsVariable) == "" {
		runtime.LockOSThread() // the signal comes when this thread ends
		c := exec.Command("/proc/self/exe", os.Args[1:]...)
		c.Args[0] = os.Args[0]
		c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
		c.Env = append(os.Environ(), inNamespace+"=1")
		c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		err := c.Start()
		if err == nil {
			_ = c.Wait()
			os.Exit(c.ProcessState.ExitCode())
		}
		noNamespace = fmt.Sprintf("a network namespace (%v): run as root", err)
	}
	leaktest.Main(m)
}

// names counts interfaces, whose names are not used again.
var names atomic.Int32

// pair makes two interfaces with a wire between them, with so many queues each, both up.
func pair(t testing.TB, queues int) (string, string) {
	t.Helper()
	if noNamespace != "" {
		t.Skip("it needs " + noNamespace)
	}
	n := names.Add(1)
	a, b := fmt.Sprintf("left%d", n), fmt.Sprintf("right%d", n)
	attributes := netlink.NewLinkAttrs()
	attributes.Name, attributes.MTU = a, 3000
	attributes.NumTxQueues, attributes.NumRxQueues = queues, queues
	veth := &netlink.Veth{LinkAttrs: attributes, PeerName: b, PeerNumTxQueues: uint32(queues), PeerNumRxQueues: uint32(queues), PeerMTU: 3000}
	must.OK(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	for _, name := range []string{a, b} {
		up(t, name)
	}
	return a, b
}

func linkOf(t testing.TB, name string) netlink.Link {
	t.Helper()
	return must.Get(netlink.LinkByName(name))(t)
}

func up(t testing.TB, name string) {
	t.Helper()
	// Nobody but the tests is to send anything there.
	err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/disable_ipv6", []byte("1"), 0)
	must.Hold(t, err == nil || os.IsNotExist(err), "%v", err)
	must.OK(t, netlink.LinkSetUp(linkOf(t, name)))
}

// open opens a port that is closed with the test.
func open(t testing.TB, address string, c ethernet.Options) ethernet.Port {
	t.Helper()
	if c.Pool == nil {
		c.Pool = porttest.NewPool(t, ethernet.PoolOptions{})
	}
	if c.Logger == nil {
		c.Logger = quiet
	}
	if c.Timeout == 0 {
		c.Timeout = timeout
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	p := must.Get(ethernet.Open(ctx, address, c))(t)
	porttest.CloseAtEnd(t, p)
	return p
}

// settle has what is under way between two queues arrive, and drops it. What overruns the
// receiver may be lost, so that it sends a last frame again and again until one arrives.
func settle(t testing.TB, from, to ethernet.Queue) {
	t.Helper()
	last, want := 1<<20, make([]byte, 1514)
	var again time.Time
	frames := make([]ethernet.Frame, 32)
	waittest.Until(t, "the last frame", func() bool {
		must.Get(from.Unsent())(t)
		if time.Now().After(again) {
			last += porttest.Send(t, from, last+1, 1)
			again = time.Now().Add(100 * time.Millisecond)
		}
		n := must.Get(to.Receive(frames))(t)
		came := false
		for _, f := range frames[:n] {
			want := want[:porttest.Length(last)]
			porttest.Fill(want, last)
			came = came || bytes.Equal(to.Cache().Pool().Bytes(f), want)
		}
		to.Cache().Free(frames[:n])
		return came
	})
}

// raw opens the kernel's own end of an interface, which sees what arrives there and sends.
func raw(t testing.TB, name string) int {
	t.Helper()
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8
	fd := must.Get(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0))(t) // nothing before it is bound
	t.Cleanup(func() { unix.Close(fd) })
	tv := unix.NsecToTimeval(int64(timeout))
	must.OK(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv))
	must.OK(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: linkOf(t, name).Attrs().Index}))
	return fd
}
