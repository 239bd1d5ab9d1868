package bench

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// way is a row of wires: how the two ends are opened, and what can be measured between them.
type way struct {
	tests []Test
	// placed: the placement of its engines can be chosen. socket: the ends are sockets of the kernel.
	placed, socket bool
	// open puts the addresses of the ends into a path.
	open func(*Task, *path) error
}

// path is a way between two ends that is set up for one measurement.
type path struct {
	echo, source string   // addresses
	single       bool     // one process has both
	folder       string   // removed at the end
	cable        *cable   // if the ends are in network namespaces of their own
	served       []string // sockets of NICs in a third process
}

var messages = []Test{Latency, Bandwidth, Put, Get}

// wires are the ways between two ends.
var wires = map[string]way{
	"memory":    {append(messages[:4:4], Idle), true, false, inMemory},
	"shm":       {append(messages[:4:4], Fetch, Idle), true, false, onSocket("shm", "&share=off&role=", "listen", "connect")},
	"shm-share": {append(messages[:4:4], Fetch), true, false, onSocket("shm", "&share=on&role=", "listen", "connect")},
	"shm-write": {append(messages[:4:4], Fetch), true, false, onSocket("shm", "&share=write&role=", "listen", "connect")},
	"memif":     {append(messages[:4:4], Fetch, Frames), true, false, onSocket("memif", "&mode=poll&role=", "server", "client")},
	"udp":       {append(messages[:4:4], Fetch), true, false, overUDP},
	"vfio-user": {messages, false, false, behindVFIOUser},
	veth:        {messages, true, false, overVeth},
	vethJumbo:   {messages, true, false, overVeth},
	vethLong:    {messages, true, false, overVeth},
	// The kernel's sockets, as a Go program has them without us.
	"unix": {[]Test{Latency, Bandwidth, Fetch}, false, true, func(_ *Task, p *path) error {
		p.echo = "unix:" + filepath.Join(p.folder, "s")
		return nil
	}},
	"tcp": {[]Test{Latency, Bandwidth, Fetch}, false, true, func(_ *Task, p *path) error {
		port, err := freePort()
		p.echo = fmt.Sprintf("tcp:127.0.0.1:%d", port)
		return err
	}},
	// Pipes, with no NIC: a thread that is blocked in read(2), and a goroutine that waits.
	idleKernel:  {[]Test{Idle}, false, false, func(_ *Task, p *path) error { p.single = true; return nil }},
	idleRuntime: {[]Test{Idle}, false, false, func(_ *Task, p *path) error { p.single = true; return nil }},
}

func (w way) has(t Test) bool { return slices.Contains(w.tests, t) }

// wiresOf returns the names of the wires over which a test can be made.
func wiresOf(t Test) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(wires)) {
		if wires[name].has(t) {
			names = append(names, name)
		}
	}
	return names
}

// Wires returns the names of the wires for messages.
func Wires() []string { return wiresOf(Latency) }

// path opens the way of a task that is valid.
func (t *Task) path() (*path, error) {
	folder, err := os.MkdirTemp("", "trapeze-bench-")
	if err != nil {
		return nil, err
	}
	p := &path{folder: folder}
	if err := wires[t.Wire].open(t, p); err != nil {
		p.remove()
		return nil, err
	}
	if wires[t.Wire].socket {
		p.source = p.echo
	}
	return p, nil
}

func (p *path) remove() {
	_ = os.RemoveAll(p.folder)
	if p.cable != nil {
		_ = p.cable.close()
	}
}

// in runs f where end number i of the path is.
func (p *path) in(i int, f func() error) error {
	if p.cable == nil {
		return f()
	}
	return p.cable.in(i, f)
}

// option is the placement as an option of an address.
func (t *Task) option() string {
	if t.Placement == "default" {
		return ""
	}
	return "&engine=" + t.Placement
}

func inMemory(t *Task, p *path) error {
	p.single, p.echo = true, "emu:?wire=mem:trapeze-bench"+t.option()
	if t.VIs+t.Unused+t.CQs+t.Regions > 1 {
		p.echo += fmt.Sprintf("&vis=%d&cqs=%d&regions=%d", t.VIs+t.Unused, t.CQs+1, t.Regions+1<<10)
	}
	p.source = p.echo
	return nil
}

// onSocket opens a wire whose ends meet at a socket, with a role each.
func onSocket(wire, options, echo, source string) func(*Task, *path) error {
	return func(t *Task, p *path) error {
		at := "emu:?wire=" + wire + ":" + filepath.Join(p.folder, "wire") + t.option() + options
		p.echo, p.source = at+echo, at+source
		return nil
	}
}

func overUDP(t *Task, p *path) error {
	own, err := freePort()
	if err != nil {
		return err
	}
	peer, err := freePort()
	for err == nil && peer == own {
		peer, err = freePort()
	}
	const address = "emu:?wire=udp://127.0.0.1:%d&peer=127.0.0.1:%d%s"
	p.echo, p.source = fmt.Sprintf(address, own, peer, t.option()), fmt.Sprintf(address, peer, own, t.option())
	return err
}

func freePort() (int, error) {
	c, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return 0, err
	}
	return c.LocalAddr().(*net.UDPAddr).Port, c.Close()
}

// behindVFIOUser puts both NICs into a process of their own, behind vfio-user.
func behindVFIOUser(_ *Task, p *path) error {
	p.served = []string{filepath.Join(p.folder, "nic0"), filepath.Join(p.folder, "nic1")}
	p.echo, p.source = "vfio-user:"+p.served[0], "vfio-user:"+p.served[1]
	return nil
}

// The wires, and tests of Compare, between two network namespaces of this machine: a pair of
// interfaces as Linux makes them, with an MTU of 1500, for jumbo frames, and with the largest MTU.
// They take root.
const (
	veth      = "veth"
	vethJumbo = "veth-9000"
	vethLong  = "veth-65535"
)

var vethMTU = map[string]int{veth: 1500, vethJumbo: 9000, vethLong: 65535}

// vethName is the name of each of the two interfaces, and vethAddresses are theirs: of a network
// that nothing else is in (RFC 5737, TEST-NET-1).
const vethName = "trapeze0"

var vethAddresses = [2]string{"192.0.2.1", "192.0.2.2"}

// cable is a pair of interfaces, each in a network namespace of its own.
type cable [2]netns.NsHandle

// newCable makes one, of a wire's MTU. The interfaces are gone once it is closed and no process is there.
func newCable(wire string) (_ *cable, err error) {
	c := &cable{netns.None(), netns.None()}
	defer func() {
		if err != nil {
			err = fmt.Errorf("a veth pair between two network namespaces, which takes root: %w", errors.Join(err, c.close()))
		}
	}()
	for i := range c {
		if err := outside(func() (err error) { c[i], err = netns.New(); return err }); err != nil {
			return nil, err
		}
	}
	err = c.in(0, func() error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: vethName, MTU: vethMTU[wire]}, PeerName: vethName,
			PeerMTU: uint32(vethMTU[wire]), PeerNamespace: netlink.NsFd(c[1])}
		return netlink.LinkAdd(link)
	})
	for i := 0; i < len(c) && err == nil; i++ {
		err = c.in(i, func() error { return raise(vethAddresses[i]) })
	}
	return c, err
}

// raise gives the interface of this thread's namespace its address, and switches it on.
func raise(address string) error {
	link, err := netlink.LinkByName(vethName)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(address + "/24")
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrAdd(link, a), netlink.LinkSetUp(link))
}

// in runs f on a thread in one of the namespaces: processes that it starts are there.
func (c *cable) in(i int, f func() error) error {
	return outside(func() error {
		if err := netns.Set(c[i]); err != nil {
			return err
		}
		return f()
	})
}

// outside runs f, which may change the namespace, on a thread that then goes back. A thread that
// cannot is lost to the program; f's error explains why, and is returned alone.
func outside(f func() error) error {
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = f()
	if back := errors.Join(netns.Set(home), home.Close()); back != nil {
		return cmp.Or(err, back)
	}
	runtime.UnlockOSThread()
	return err
}

func (c *cable) close() (err error) {
	for i := range c {
		if c[i].IsOpen() {
			err = errors.Join(err, c[i].Close())
		}
	}
	return err
}

// overVeth makes the path between two interfaces. Unless the task says otherwise the polls of the
// processes drive the engines: a thread of the engine would want the very core that they poll on.
func overVeth(t *Task, p *path) (err error) {
	if p.cable, err = newCable(t.Wire); err != nil {
		return err
	}
	p.echo = "emu:?wire=afxdp:" + vethName + cmp.Or(t.option(), "&engine=inline")
	p.source = p.echo
	return nil
}
