package qtest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// NetAddr returns the UDP address of the network side of the device with number n, on
// the loopback interface: a datagram that is sent there arrives as a frame of the same
// bytes. Frames wait in the socket while the device has no room; too many are lost.
func (m *Machine) NetAddr(n int) netip.AddrPort {
	if n < 0 || n >= len(m.wires) {
		return netip.AddrPort{}
	}
	local, _ := netip.ParseAddrPort(m.wires[n].LocalAddr().String())
	return local
}

// Connect says where the frames go that device n sends: to a UDP address on the
// loopback interface, such as that of a UDP wire, or NetAddr of another device. From
// then on frames are taken from there only. Until then it takes frames from all,
// and those that it sends are lost.
func (m *Machine) Connect(n int, peer netip.AddrPort) error {
	op := fmt.Sprintf("connect to %v the network side of", peer)
	if err := m.has(n); err != nil {
		return m.fail(op, n, err)
	}
	if !peer.Addr().Is4() || !peer.Addr().IsLoopback() {
		return m.fail(op, n, errors.New("want an IPv4 address of the loopback interface"))
	}
	c, err := m.wires[n].SyscallConn()
	if err == nil {
		var cerr error
		err = c.Control(func(fd uintptr) {
			cerr = unix.Connect(int(fd), &unix.SockaddrInet4{Port: int(peer.Port()), Addr: peer.Addr().As4()})
		})
		err = errors.Join(err, os.NewSyscallError("connect", cerr))
	}
	return m.fail(op, n, err)
}

// SetLink plugs the cable of device n in or out.
func (m *Machine) SetLink(n int, up bool) error {
	return m.command("set the link of", n, "set_link", map[string]any{"name": fmt.Sprintf("d%d", n), "up": up})
}

// command gives QEMU's monitor a command about device n.
func (m *Machine) command(op string, n int, command string, arguments any) error {
	if err := m.has(n); err != nil {
		return m.fail(op, n, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), m.timeout)
	defer cancel()
	m.monitorMu.Lock()
	defer m.monitorMu.Unlock()
	if cause := m.link.lost(); cause != nil {
		return m.fail(op, n, cause)
	}
	_, err := m.qmp.Execute(ctx, command, arguments)
	if why := m.process.explain(err); errors.As(why, new(*ExitError)) {
		err = m.link.fail(why)
	}
	return m.fail(op, n, err)
}
