package bench

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

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
