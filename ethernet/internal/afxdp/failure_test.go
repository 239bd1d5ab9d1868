package afxdp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/afxdp"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestRefusals: what cannot be is refused with an error that says what can, and leaves
// nothing behind.
func TestRefusals(t *testing.T) {
	leaktest.Check(t)
	a, _ := pair(t, 2)
	down, _ := pair(t, 1)
	must.OK(t, netlink.LinkSetDown(linkOf(t, down)))
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	small := porttest.NewPool(t, ethernet.PoolOptions{Size: 1900})
	large := porttest.NewPool(t, ethernet.PoolOptions{Size: 9216, Buffers: 1024})
	for _, tt := range []struct {
		address string
		config  ethernet.Options
		want    error
		says    string
	}{
		{"afxdp:", ethernet.Options{}, vfio.ErrBadAddress, "afxdp:eth0"},
		{"afxdp:an-interface-name-too-long", ethernet.Options{}, vfio.ErrBadAddress, "afxdp:eth0"},
		{"afxdp:" + a + "?mode=fast", ethernet.Options{}, vfio.ErrBadAddress, "native or generic"},
		{"afxdp:" + a + "?copy=no", ethernet.Options{}, vfio.ErrBadAddress, "zero or copy"},
		{"afxdp:" + a + "?queue=-1", ethernet.Options{}, vfio.ErrBadAddress, "0..4095"},
		{"afxdp:" + a + "?queue=4096", ethernet.Options{}, vfio.ErrBadAddress, "0..4095"},
		{"afxdp:" + a + "?mod=native", ethernet.Options{}, vfio.ErrBadAddress, "did you mean mode"},
		{"afxdp:" + a + "?mode=generic&copy=zero", ethernet.Options{}, vfio.ErrBadAddress, "mode=native"},
		{"afxdp:none0", ethernet.Options{}, ethernet.ErrDeviceGone, a},
		{"afxdp:lo", ethernet.Options{}, ethernet.ErrNotSupported, "no Ethernet interface"},
		{"afxdp:" + down, ethernet.Options{}, ethernet.ErrNotReady, "ip link set dev " + down + " up"},
		{"afxdp:" + a, ethernet.Options{Queues: 3}, ethernet.ErrNotSupported, "the interface has 2"},
		{"afxdp:" + a + "?queue=2", ethernet.Options{}, ethernet.ErrNotSupported, "the interface has 2"},
		{"afxdp:" + a, ethernet.Options{MTU: 3500, Pool: large}, ethernet.ErrNotSupported, "mtu 3500"},
		{"afxdp:" + a, ethernet.Options{MTU: 9000, Pool: large}, ethernet.ErrNotSupported, "mtu 9000"},
		{"afxdp:" + a, ethernet.Options{MTU: 8200, Pool: porttest.NewPool(t, ethernet.PoolOptions{Size: 8256})}, ethernet.ErrConfig, "Options.MTU"},
		{"afxdp:" + a + "?copy=zero", ethernet.Options{MTU: 9000, Pool: large}, ethernet.ErrConfig, "pages for longer frames"},
		{"afxdp:" + a, ethernet.Options{Pool: small}, ethernet.ErrConfig, "at least 1984"},
		{"afxdp:" + a + "?copy=zero", ethernet.Options{}, ethernet.ErrConfig, "1984 or"},
		{"afxdp:" + a + "?copy=zero", ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{Size: 4032})}, ethernet.ErrNotSupported, "copy=auto"},
		{"afxdp:" + a, ethernet.Options{Offloads: ethernet.OffloadHash}, ethernet.ErrNotSupported, "hash"},
		{"afxdp:" + a, ethernet.Options{Moderation: time.Millisecond}, ethernet.ErrNotSupported, "ethtool -C"},
		{"afxdp:" + a, ethernet.Options{HashKey: [40]byte{1}}, ethernet.ErrNotSupported, "ethtool -X"},
		{"afxdp:" + a, ethernet.Options{MAC: ethernet.MAC{1}}, ethernet.ErrConfig, "Options.MAC"},
		{"afxdp:" + a, ethernet.Options{Queues: 65}, ethernet.ErrConfig, "Options.Queues"},
	} {
		if tt.config.Pool == nil {
			tt.config.Pool = pool
		}
		tt.config.Logger = quiet
		p, err := ethernet.Open(t.Context(), tt.address, tt.config)
		should.Hold(t, errors.Is(err, tt.want) && strings.Contains(err.Error(), tt.says),
			"%s, %+v: %v, want %q and %v", tt.address, tt.config, err, tt.says, tt.want)
		if err == nil {
			p.Close()
		}
	}
	should.Refuse(ethernet.Open(t.Context(), "afxdp:"+a, ethernet.Options{}))(t, ethernet.ErrConfig, "without a pool")
	// A configuration that was checked already, with all defaults, is good.
	c := must.Get(ethernet.Options{Pool: pool, Logger: quiet}.Check())(t)
	open(t, "afxdp:"+a, c)
}

// TestInUse: a queue and an interface that somebody has are waited for, but not for ever.
func TestInUse(t *testing.T) {
	leaktest.Parallel(t)
	a, _ := pair(t, 2)
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	p := open(t, "afxdp:"+a, ethernet.Options{Pool: pool})
	c := ethernet.Options{Pool: pool, Timeout: 50 * time.Millisecond, Logger: quiet}
	for _, options := range []string{"", "?queue=1", "?mode=generic"} {
		_, err := ethernet.Open(t.Context(), "afxdp:"+a+options, c)
		should.Hold(t, errors.Is(err, ethernet.ErrInUse) && strings.Contains(err.Error(), "ip link show"), "%q: %v", options, err)
	}
	c.Timeout = timeout
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	should.Refuse(ethernet.Open(ctx, "afxdp:"+a, c))(t, context.DeadlineExceeded, "with a deadline")
	must.OK(t, p.Close())
	open(t, "afxdp:"+a, c)
}

// TestRestart: queues go on after restarts while they are in use, and no buffer is lost.
func TestRestart(t *testing.T) {
	leaktest.Parallel(t)
	a, b := pair(t, 1)
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	left := open(t, "afxdp:"+a, ethernet.Options{Pool: pool, Interrupts: true})
	right := open(t, "afxdp:"+b, ethernet.Options{Pool: pool, Interrupts: true})
	stop := make(chan struct{})
	var users sync.WaitGroup
	for _, p := range []ethernet.Port{left, right} {
		users.Go(func() {
			frames, q := make([]ethernet.Frame, 16), p.Queue(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
				porttest.Send(t, q, 0, 16)
				n, err := q.Receive(frames)
				if err != nil {
					t.Error(err)
					return
				}
				q.Cache().Free(frames[:n])
				if err := q.Wait(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	const rounds = 10
	for range rounds {
		for _, p := range []ethernet.Port{left, right} {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			should.OK(t, p.Restart(ctx))
			cancel()
		}
	}
	close(stop)
	users.Wait()
	should.Be(t, left.Stats().Restarts, rounds)
	settle(t, left.Queue(0), right.Queue(0))
	porttest.Exchange(t, left.Queue(0), right.Queue(0), 500, 64)
}

// TestClose: whoever uses a port that is closed gets ErrClosed, and the buffers come back.
func TestClose(t *testing.T) {
	leaktest.Parallel(t)
	for _, interrupts := range []bool{false, true} {
		leaktest.Check(t)
		a, b := pair(t, 1)
		pool := porttest.NewPool(t, ethernet.PoolOptions{})
		left, right := open(t, "afxdp:"+a, ethernet.Options{Pool: pool, Interrupts: interrupts}), open(t, "afxdp:"+b, ethernet.Options{Pool: pool})
		porttest.Exchange(t, left.Queue(0), right.Queue(0), 64, 32)
		var users sync.WaitGroup
		users.Go(func() {
			q, frames := left.Queue(0), make([]ethernet.Frame, 16)
			var err error
			for err == nil {
				n := q.Cache().Alloc(frames)
				for i := range frames[:n] {
					frames[i].Length = 60
				}
				var sent int
				sent, err = q.Send(frames[:n])
				q.Cache().Free(frames[sent:n])
				if err == nil {
					err = q.Wait(t.Context())
				}
			}
			should.Fail(t, err, ethernet.ErrClosed)
		})
		waittest.Until(t, "frames", func() bool { return left.Stats().Queues[0].SentFrames > 200 })
		for range 2 {
			should.OK(t, left.Close())
		}
		users.Wait()
		should.Fail(t, left.SetPromiscuous(true), ethernet.ErrClosed)
		should.Fail(t, left.Restart(t.Context()), ethernet.ErrClosed)
		should.Refuse(left.Link())(t, ethernet.ErrClosed)
		c := left.Stats()
		should.Hold(t, c.Device == nil && c.Queues[0].SentFrames != 0, "%+v", c)
	}
}

// TestDeleted: an interface that is deleted under load ends its port with ErrDeviceGone.
// Restart opens the one that is made in its place.
func TestDeleted(t *testing.T) {
	for _, interrupts := range []bool{false, true} {
		leaktest.Check(t)
		a, _ := pair(t, 1)
		p := open(t, "afxdp:"+a, ethernet.Options{Interrupts: interrupts})
		q, frames := p.Queue(0), make([]ethernet.Frame, 16)
		link := linkOf(t, a)
		var deleted sync.WaitGroup
		deleted.Go(func() {
			time.Sleep(5 * time.Millisecond) // so that there is load; if not, the test is only weaker
			should.OK(t, netlink.LinkDel(link))
		})
		waittest.Until(t, "an error", func() bool {
			n := q.Cache().Alloc(frames)
			for i := range frames[:n] {
				frames[i].Length = 60
			}
			sent, err := q.Send(frames[:n])
			q.Cache().Free(frames[sent:n])
			if err == nil {
				err = q.Wait(t.Context())
			}
			if err == nil {
				return false
			}
			should.Hold(t, errors.Is(err, ethernet.ErrDeviceGone) && strings.Contains(err.Error(), "Restart"), "%v", err)
			return true
		})
		deleted.Wait()
		should.Refuse(p.Link())(t, ethernet.ErrDeviceGone)
		should.Fail(t, p.Restart(t.Context()), ethernet.ErrDeviceGone, "restart without an interface")
		names.Add(-1) // the same name again
		a, b := pair(t, 1)
		err := p.Restart(t.Context())
		must.Hold(t, err == nil, "restart on %s: %v", a, err)
		right := open(t, "afxdp:"+b, ethernet.Options{})
		porttest.Exchange(t, q, right.Queue(0), 200, 64)
	}
}

// TestHostileRings: rings that make no sense are replaced, and frames flow again. A kernel
// that does not stop ends the port.
func TestHostileRings(t *testing.T) {
	leaktest.Parallel(t)
	for name, spoil := range map[string]func(p ethernet.Port) bool{
		"receive":        func(p ethernet.Port) bool { return afxdp.Spoil(p, 0, 2, afxdp.Producer, 1<<31) },
		"receive behind": func(p ethernet.Port) bool { return afxdp.Spoil(p, 0, 2, afxdp.Producer, 1<<32-5) },
		"stale receives": func(p ethernet.Port) bool { return afxdp.Spoil(p, 0, 2, afxdp.Producer, 64+100) },
		"completion":     func(p ethernet.Port) bool { return afxdp.Spoil(p, 0, 1, afxdp.Producer, 1<<30) },
		"send":           func(p ethernet.Port) bool { return afxdp.Spoil(p, 0, 3, afxdp.Consumer, 1<<30) },
	} {
		t.Run(name, func(t *testing.T) {
			leaktest.Check(t)
			a, b := pair(t, 1)
			pool := porttest.NewPool(t, ethernet.PoolOptions{})
			left, right := open(t, "afxdp:"+a, ethernet.Options{Pool: pool}), open(t, "afxdp:"+b, ethernet.Options{Pool: pool})
			porttest.Exchange(t, left.Queue(0), right.Queue(0), 64, 64)
			porttest.Exchange(t, right.Queue(0), left.Queue(0), 64, 64)
			spoil(left)
			waittest.Until(t, "a restart", func() bool {
				frames := make([]ethernet.Frame, 8)
				n, err := left.Queue(0).Receive(frames)
				must.Give(n, err)(t, 0)
				must.Get(left.Queue(0).Unsent())(t)
				return left.Stats().Queues[0].Restarts == 1
			})
			porttest.Exchange(t, left.Queue(0), right.Queue(0), 300, 64)
			porttest.Exchange(t, right.Queue(0), left.Queue(0), 300, 64)
			// Again and again.
			waittest.Until(t, "the end", func() bool {
				spoil(left)
				_, rerr := left.Queue(0).Receive(make([]ethernet.Frame, 8))
				_, uerr := left.Queue(0).Unsent()
				err := errors.Join(rerr, uerr)
				must.Hold(t, err == nil || errors.Is(err, ethernet.ErrProtocol), "%v", err)
				return err != nil
			})
			must.OK(t, left.Restart(t.Context()))
			porttest.Exchange(t, left.Queue(0), right.Queue(0), 300, 64)
		})
	}
}

// TestStandstill: a kernel that sends nothing any more gets a new socket, and what it had
// is counted as lost.
func TestStandstill(t *testing.T) {
	leaktest.Check(t)
	a, b := pair(t, 1)
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	left := open(t, "afxdp:"+a, ethernet.Options{Pool: pool, SendDescriptors: 64, Timeout: 100 * time.Millisecond})
	right := open(t, "afxdp:"+b, ethernet.Options{Pool: pool})
	// Without this flag nobody wakes it.
	afxdp.Spoil(left, 0, 3, afxdp.Flags, 0)
	waittest.Until(t, "a restart", func() bool {
		porttest.Send(t, left.Queue(0), 0, 32)
		return left.Stats().Queues[0].Restarts == 1
	})
	should.Be(t, left.Stats().Queues[0].Lost, 64)
	settle(t, left.Queue(0), right.Queue(0))
	porttest.Exchange(t, left.Queue(0), right.Queue(0), 300, 64)
}

// TestQuiesce: a queue that nobody has is quiet, and one that somebody has is not, which
// keeps the pool from being closed.
func TestQuiesce(t *testing.T) {
	leaktest.Check(t)
	a, _ := pair(t, 2)
	memory := must.Get(vfio.AllocMemory(4096*4096, vfio.MemoryOptions{}))(t)
	defer memory.Close()
	pool := must.Get(ethernet.NewPool(ethernet.PoolOptions{Size: 4032, Memory: memory}))(t)
	p := open(t, "afxdp:"+a, ethernet.Options{Pool: pool, Timeout: 50 * time.Millisecond})
	for _, number := range []int{1, 7} { // there is no queue 7
		err := afxdp.Quiesce(p, number)
		should.Hold(t, err == nil, "queue %d: %v", number, err)
	}
	should.Fail(t, afxdp.Quiesce(p, 0), ethernet.ErrNotStopped, "the port's own queue")
	should.OK(t, p.Close())
	should.Fail(t, pool.Close(), ethernet.ErrInUse, "the pool")
}

// TestFilters: what is asked for is with the kernel, until the port is closed.
func TestFilters(t *testing.T) {
	leaktest.Parallel(t)
	a, _ := pair(t, 1)
	mac, group := ethernet.MAC{2, 0, 0, 0, 0, 0x77}, ethernet.MAC{1, 0, 0x5e, 1, 2, 3}
	p := open(t, "afxdp:"+a, ethernet.Options{Promiscuous: true})
	own := p.MAC()
	should.Hold(t, own == p.Info().MAC && own.IsStation(), "the address is %v", own)
	state := func() (promiscuous int, station, joined bool) {
		list, err := os.ReadFile("/proc/thread-self/net/dev_mcast") // the first thread may be elsewhere, see TestNamespace
		must.OK(t, err)
		for line := range strings.Lines(string(list)) {
			joined = joined || strings.Contains(line, a+" ") && strings.Contains(line, "01005e010203")
		}
		index := linkOf(t, a).Attrs().Index
		entries, err := netlink.NeighList(index, unix.AF_BRIDGE)
		must.OK(t, err)
		for _, e := range entries {
			station = station || e.LinkIndex == index && e.HardwareAddr.String() == mac.String()
		}
		return linkOf(t, a).Attrs().Promisc, station, joined
	}
	check := func(wantPromiscuous int, wantStation, wantJoined bool) {
		t.Helper()
		if p, s, j := state(); p != wantPromiscuous || s != wantStation || j != wantJoined {
			t.Errorf("promiscuous %d, station %t, group %t; want %d, %t, %t", p, s, j, wantPromiscuous, wantStation, wantJoined)
		}
	}
	check(1, false, false)
	should.OK(t, p.SetPromiscuous(false))
	should.OK(t, p.SetMulticast([]ethernet.MAC{group, {1, 0, 0x5e, 1, 2, 4}}))
	check(0, false, true)
	should.OK(t, p.SetMAC(mac)) // veth filters no addresses, so that Linux makes it promiscuous
	check(1, true, true)
	should.Hold(t, p.MAC() == mac && p.Info().MAC == own, "the address was not changed")
	should.OK(t, p.Restart(t.Context()))
	check(1, true, true)
	for _, err := range []error{p.SetMAC(group), p.SetMulticast([]ethernet.MAC{mac})} {
		should.Fail(t, err, ethernet.ErrConfig)
	}
	check(1, true, true)
	should.OK(t, p.SetVLANs(nil))
	should.Fail(t, p.SetVLANs([]uint16{1}), ethernet.ErrNotSupported)
	should.OK(t, p.SetMulticast(nil))
	check(1, true, false)
	should.OK(t, p.Close())
	check(0, false, false)
}

// TestNamespace: a port stays in the network namespace in which it was opened, also when
// another goroutine restarts its queues.
func TestNamespace(t *testing.T) {
	leaktest.Check(t)
	pair(t, 1) // for it to be skipped
	var p, right ethernet.Port
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				return err
			}
			if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "far0", MTU: 1500}, PeerName: "far1"}); err != nil {
				return err
			}
			for _, name := range []string{"far0", "far1"} {
				l, err := netlink.LinkByName(name)
				if err == nil {
					err = netlink.LinkSetUp(l)
				}
				if err != nil {
					return err
				}
			}
			var err error
			if p, err = ethernet.Open(t.Context(), "afxdp:far0", ethernet.Options{Pool: pool, Logger: quiet, Promiscuous: true}); err != nil {
				return err
			}
			right, err = ethernet.Open(t.Context(), "afxdp:far1", ethernet.Options{Pool: pool, Logger: quiet})
			return err
		}()
	}()
	must.OK(t, <-done)
	t.Cleanup(func() {
		should.OK(t, errors.Join(p.Close(), right.Close()))
	})
	settle(t, p.Queue(0), right.Queue(0)) // Linux may have sent frames of its own
	afxdp.Spoil(p, 0, 2, afxdp.Producer, 1<<31)
	waittest.Until(t, "a restart", func() bool {
		_, err := p.Queue(0).Receive(make([]ethernet.Frame, 1))
		must.OK(t, err)
		return p.Stats().Queues[0].Restarts == 1
	})
	settle(t, p.Queue(0), right.Queue(0))
	must.OK(t, p.Restart(t.Context()))
	should.OK(t, p.SetPromiscuous(false))
	settle(t, p.Queue(0), right.Queue(0))
}

// holderVariable names the interface that a process of TestDeath opens; what it has to say
// is a line.
const holderVariable = "TRAPEZE_TEST_HOLD"

// holder opens an interface and waits to be killed.
func holder(name string) {
	// Of users but root: as much as the buffers of one queue and a half.
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 8 << 20, Max: 8 << 20}); err != nil {
		fmt.Println(err)
	}
	pool, err := ethernet.NewPool(ethernet.PoolOptions{Buffers: 2560})
	if err == nil {
		_, err = ethernet.Open(context.Background(), "afxdp:"+name, ethernet.Options{Pool: pool, Promiscuous: true})
	}
	fmt.Println(err)
	_, _ = bufio.NewReader(os.Stdin).ReadByte()
}

// hold starts a process that opens an interface, and returns what it has said.
func hold(t testing.TB, name string, as *syscall.SysProcAttr) (*exec.Cmd, string) {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), holderVariable+"="+name)
	c.SysProcAttr, c.Stderr = as, os.Stderr
	in := must.Get(c.StdinPipe())(t)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	must.OK(t, err)
	t.Cleanup(func() { in.Close(); _ = c.Process.Kill(); _ = c.Wait() })
	line := must.Get(bufio.NewReader(out).ReadString('\n'))(t)
	return c, line
}

// TestDeath: a process that is killed leaves nothing, and the next one opens the interface
// at once.
func TestDeath(t *testing.T) {
	leaktest.Parallel(t)
	a, b := pair(t, 1)
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	for range 3 {
		c, said := hold(t, a, nil)
		must.Be(t, said, "<nil>\n")
		must.OK(t, c.Process.Kill())
		_ = c.Wait()
		p := open(t, "afxdp:"+a, ethernet.Options{Pool: pool})
		should.Be(t, linkOf(t, a).Attrs().Promisc, 0, "promiscuous")
		right := open(t, "afxdp:"+b, ethernet.Options{Pool: pool})
		porttest.Exchange(t, p.Queue(0), right.Queue(0), 100, 32)
		must.OK(t, errors.Join(p.Close(), right.Close()))
	}
}

// TestLateMemory: buffers that another process of this user has locked are waited for: they come late.
func TestLateMemory(t *testing.T) {
	leaktest.Parallel(t)
	a, b := pair(t, 1)
	as := &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 4_000_000_031, Gid: 65534},
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_BPF}}
	c, said := hold(t, a, as)
	must.Be(t, said, "<nil>\n")
	defer time.AfterFunc(200*time.Millisecond, func() { _ = c.Process.Kill() }).Stop()
	_, said = hold(t, b, as)
	should.Hold(t, said == "<nil>\n", "%v", said)
	_, said = hold(t, a, as)
	should.Hold(t, strings.Contains(said, "LimitMEMLOCK"), "while another process has them: %s", said)
}

// TestCapabilities: who may not open an interface learns what is needed.
func TestCapabilities(t *testing.T) {
	leaktest.Check(t)
	a, _ := pair(t, 1)
	_, said := hold(t, a, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}})
	should.Contain(t, said, "CAP_NET_RAW, CAP_NET_ADMIN, CAP_BPF")
}
