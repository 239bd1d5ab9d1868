package guest

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// Addresses of both ends.
const (
	ourIP   = "10.7.0.1"
	theirIP = "10.7.0.2"
)

// peer is a NIC that Linux drives, in a network namespace of its own, which a process that
// sleeps keeps.
type peer struct {
	t         *testing.T
	function  string
	name      string // of the interface
	index     int
	mac       ethernet.MAC
	namespace *os.File
	pid       string
}

// linux makes Linux drive the other NIC of a pair.
func (p pair) linux(t *testing.T) *peer {
	t.Helper()
	list := find(t, p.theirID)
	must.Hold(t, len(list) > p.theirN, "functions %q", list)
	module := p.driver
	if module == "virtio-pci" {
		module = "virtio_net"
	}
	load(t, module)
	return newPeer(t, list[p.theirN], p.driver)
}

// newPeer makes a driver of Linux's drive a function, with an address and its link up.
func newPeer(t *testing.T, function, driver string) *peer {
	t.Helper()
	bind(t, function, driver)
	t.Cleanup(func() { bind(t, function, "none") })
	l := &peer{t: t, function: function}
	waittest.Until(t, "the NIC has an interface", func() bool {
		list, _ := filepath.Glob(filepath.Join(pciDevices, function, "net/*"))
		if len(list) == 0 { // virtio's is one level deeper
			list, _ = filepath.Glob(filepath.Join(pciDevices, function, "virtio*/net/*"))
		}
		if len(list) > 0 {
			l.name = filepath.Base(list[0])
		}
		return len(list) > 0
	})
	i := must.Get(net.InterfaceByName(l.name))(t)
	l.index, l.mac = i.Index, ethernet.MAC(i.HardwareAddr)
	keeper := exec.Command("sleep", "1000000")
	keeper.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET}
	must.OK(t, keeper.Start())
	t.Cleanup(func() {
		// Else Linux gives the interface back in its own time.
		_ = exec.Command("nsenter", "-t", l.pid, "-n", "ip", "link", "set", l.name, "netns", "1").Run()
		l.namespace.Close()
		_ = keeper.Process.Kill()
		_ = keeper.Wait()
	})
	l.pid = strconv.Itoa(keeper.Process.Pid)
	l.namespace = must.Get(os.Open("/proc/" + l.pid + "/ns/net"))(t)
	l.command("ip", "link", "set", l.name, "netns", l.pid)
	// Frames that nobody asked for.
	l.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/disable_ipv6")
	l.run("ip", "addr", "add", theirIP+"/24", "dev", l.name)
	l.run("ip", "link", "set", l.name, "up")
	waittest.Until(t, "Linux's link is up", l.isUp)
	return l
}

// isUp reports whether Linux sees a link.
func (l *peer) isUp() bool {
	l.t.Helper()
	return strings.Contains(l.run("ip", "link", "show", l.name), "LOWER_UP")
}

// settled waits until nothing that was sent waits in Linux's queues any more, and its link is
// up. On a busy machine the frames of a flood may wait for so long that Linux takes its NIC for
// hung (dev_watchdog, net/sched/sch_generic.c) and resets it, which takes its link down.
func (l *peer) settled(sockets ...int) {
	l.t.Helper()
	for _, fd := range sockets {
		waittest.Until(l.t, "Linux has sent what it was given", func() bool {
			left, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
			return err == nil && left == 0
		})
	}
	waittest.Until(l.t, "Linux's link is up", l.isUp)
}

// linkChanges counts how often Linux's link has come and gone.
func (l *peer) linkChanges() string {
	l.t.Helper()
	// What /sys says of interfaces is of the namespace that has mounted it.
	return l.run("unshare", "-m", "sh", "-c", "mount -t sysfs sysfs /sys && cat /sys/class/net/"+l.name+"/carrier_changes")
}

// in is the same for a part of the test.
func (l *peer) in(t *testing.T) *peer {
	part := *l
	part.t = t
	return &part
}

// command runs a program; it returns what it says.
func (l *peer) command(args ...string) string {
	l.t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	must.OK(l.t, err, "%q %s", args, out)
	return string(out)
}

// run runs a program in the namespace.
func (l *peer) run(args ...string) string {
	l.t.Helper()
	return l.command(append([]string{"nsenter", "-t", l.pid, "-n"}, args...)...)
}

// knows makes Linux know the address of ours, so that it does not ask.
func (l *peer) knows(ours ethernet.MAC) {
	l.t.Helper()
	l.run("arp", "-i", l.name, "-s", ourIP, ours.String())
}

// socket opens a socket in the namespace. It is closed with the test.
func (l *peer) socket(domain, kind, protocol int) int {
	l.t.Helper()
	type result struct {
		fd  int
		err error
	}
	opened := make(chan result)
	go func() {
		runtime.LockOSThread() // and ends with this goroutine, as it is in another namespace
		if err := unix.Setns(int(l.namespace.Fd()), unix.CLONE_NEWNET); err != nil {
			opened <- result{-1, err}
			return
		}
		fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, protocol)
		opened <- result{fd, err}
	}()
	r := <-opened
	must.Hold(l.t, r.err == nil, "%+v", r.err)
	l.t.Cleanup(func() { unix.Close(r.fd) })
	// Nobody waits for ever, and receive buffers hold all that is under way.
	limit := unix.NsecToTimeval((100 * time.Millisecond).Nanoseconds())
	must.OK(l.t, errors.Join(unix.SetsockoptTimeval(r.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(r.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
		unix.SetsockoptInt(r.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)))
	return r.fd
}

// packets opens a packet socket (packet(7)) for whole frames of an EtherType.
func (l *peer) packets(etherType uint16) int {
	l.t.Helper()
	protocol := etherType<<8 | etherType>>8 // in network order
	fd := l.socket(unix.AF_PACKET, unix.SOCK_RAW, int(protocol))
	must.OK(l.t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: l.index}))
	return fd
}

// again reports whether an error of a socket is none.
func again(err error) bool {
	return errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOBUFS)
}
