package agent

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/wire"
)

// drawTries bounds the search for a station that no client is.
const drawTries = 64

// maxProgram bounds the name of a program, in bytes: it is only shown.
const maxProgram = 64

func refuse(why string) error { return refuseWith(unix.EPERM, why) }

func refuseWith(errno unix.Errno, why string) error {
	return &agentlink.RefusedError{Why: why, Errno: errno}
}

// lend prepares a NIC for a program.
func (a *Agent) lend(ctx context.Context, c *agentlink.Conn, who *identity, m *agentlink.Message) (*client, error) {
	l, err := a.admit(who, m)
	if err != nil {
		return nil, err
	}
	l.conn = c
	if l.port, err = l.connect(ctx, m); err != nil {
		a.forget(l)
		return nil, err
	}
	return l, nil
}

// connect gives the program its end of the wire, and makes the agent's.
func (l *client) connect(ctx context.Context, m *agentlink.Message) (*wire.SHM, error) {
	n := l.nic
	mtu := n.mtu
	if m.MTU != 0 {
		mtu = m.MTU
	}
	ours, theirs, err := pair()
	if err != nil {
		return nil, refuseWith(unix.EMFILE, "it has no descriptors left")
	}
	err = l.conn.Send(agentlink.Message{Kind: agentlink.Welcome, Version: agentlink.Version, NIC: n.Name, Station: l.mac.String(),
		MTU: mtu, VIs: l.vis, Memory: l.memory, Checksum: n.checksum, Peers: l.peers(mtu)}, theirs)
	_ = unix.Close(theirs)
	if err != nil {
		_ = unix.Close(ours)
		return nil, err
	}
	conn, err := unixsocket.TakeConn(ours, unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, err
	}
	return wire.AdoptSHM(ctx, conn, wire.SHMOptions{Role: wire.SHMListen, MTU: mtu, Transferable: true})
}

// admit takes note of a client that may have what it wants.
func (a *Agent) admit(who *identity, m *agentlink.Message) (*client, error) {
	if who.gone {
		return nil, refuse("the process that has connected has ended, and what it may have cannot be told: connect from the one that uses the NIC")
	}
	grants := a.grantsOf(who, m.NIC)
	a.mu.Lock()
	defer a.mu.Unlock()
	n, g, err := a.choose(who, m, grants)
	if err != nil {
		return nil, err
	}
	l := &client{nic: n, grant: g, vis: g.VIs, memory: g.Memory, who: who, program: printable(m.Program), said: make(chan said, maxClients+1)}
	if m.VIs != 0 {
		l.vis = m.VIs
	}
	if m.Memory != 0 {
		l.memory = m.Memory
	}
	if l.mac, err = a.station(n, g, m.Station); err != nil {
		return nil, err
	}
	a.clients = append(a.clients, l)
	return l, nil
}

func (a *Agent) forget(l *client) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.clients = slices.DeleteFunc(a.clients, func(c *client) bool { return c == l })
}

// choose finds the NIC, and the grant by which a program may have it.
func (a *Agent) choose(who *identity, m *agentlink.Message, grants []*Grant) (*nic, *Grant, error) {
	full, known := false, slices.ContainsFunc(a.nics, func(n *nic) bool { return n.Name == m.NIC })
	var tooMuch error
	for _, g := range grants {
		for _, n := range a.nics {
			if m.NIC != "" && m.NIC != n.Name || !g.grants(n.Name) {
				continue
			}
			switch {
			case m.VIs > g.VIs:
				tooMuch = refuse(fmt.Sprintf("vis=%d: %s grants %d at most", m.VIs, g.Name, g.VIs))
			case g.Memory != 0 && m.Memory > g.Memory:
				tooMuch = refuse(fmt.Sprintf("memory=%d: %s grants %d bytes at most", m.Memory, g.Name, g.Memory))
			case m.MTU != 0 && (m.MTU < datasheet.MinMTU || m.MTU > n.mtu):
				tooMuch = refuse(fmt.Sprintf("mtu=%d: NIC %s has %d", m.MTU, n.Name, n.mtu))
			case a.count(func(c *client) bool { return c.has(g, who) }) >= g.Clients:
				full = true
			case a.count(func(c *client) bool { return c.nic == n }) >= maxClients:
				full = true
			default:
				return n, g, nil
			}
		}
	}
	switch {
	case tooMuch != nil:
		return nil, nil, tooMuch
	case full:
		return nil, nil, refuseWith(unix.EAGAIN, fmt.Sprintf("user %d or its claim has as many NICs open as its grant allows, or the NIC has no room: close one, or raise clients", who.uid))
	case !known && m.NIC != "":
		return nil, nil, refuseWith(unix.ENODEV, fmt.Sprintf("it has no NIC %q", printable(m.NIC)))
	}
	return nil, nil, refuse(fmt.Sprintf("no grant lets user %d have the NIC", who.uid))
}

// has reports whether a client counts against what a grant allows a program: all of a claim do, and
// else those of its user.
func (c *client) has(g *Grant, who *identity) bool {
	if g.Claim != "" {
		return c.grant.Claim == g.Claim
	}
	return c.grant == g && c.who.uid == who.uid
}

// count counts clients of a kind. mu is held.
func (a *Agent) count(is func(c *client) bool) (n int) {
	for _, c := range a.clients {
		if is(c) {
			n++
		}
	}
	return n
}

// station finds the one that the client is to be.
func (a *Agent) station(n *nic, g *Grant, wanted string) (mac datasheet.MAC, err error) {
	taken := func(mac datasheet.MAC) bool {
		return mac == n.mac || a.count(func(c *client) bool { return c.nic == n && c.mac == mac }) > 0
	}
	if wanted == "" {
		for i := range drawTries {
			if mac = g.draw(i); g.allows(mac) && !taken(mac) {
				return mac, nil
			}
		}
		return mac, refuseWith(unix.EADDRNOTAVAIL, "all stations of the grant are taken")
	}
	b, err := net.ParseMAC(wanted)
	if err != nil || len(b) != len(mac) {
		return mac, refuseWith(unix.EINVAL, fmt.Sprintf("mac=%s: it is no station", printable(wanted)))
	}
	mac = datasheet.MAC(b)
	switch {
	case !g.allows(mac):
		return mac, refuse(fmt.Sprintf("mac=%v: %s does not grant it", mac, g.Name))
	case taken(mac):
		return mac, refuseWith(unix.EADDRINUSE, fmt.Sprintf("mac=%v: another station has it", mac))
	}
	return mac, nil
}

// enter makes a client's frames pass, and has it and those with which it may share memory meet. It reports
// false if the agent does not work any more.
func (a *Agent) enter(l *client) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := a.work
	if w == nil {
		return false
	}
	l.port.SetWake(l.nic.rouse)
	for _, d := range l.nic.table.Load().list {
		if l.direct(d) {
			introduce(l, d)
		}
	}
	l.nic.add(l)
	w.group.Go(func() { a.attend(w.ctx, l) })
	a.log.Info("client", "nic", l.nic.Name, "station", l.mac, "pid", l.who.pid, "uid", l.who.uid, "program", l.program, "grant", l.grant.Name)
	return true
}

// peers counts the clients that share memory with this one when it comes.
func (l *client) peers(mtu int) (n int) {
	for _, d := range l.nic.table.Load().list {
		if l.mayShare(d, mtu) {
			n++
		}
	}
	return n
}

// introduce has two clients share memory. Without it, their frames go through the agent.
func introduce(l, d *client) {
	first, second, err := pair()
	if err != nil {
		return
	}
	if !l.tell(agentlink.Message{Kind: agentlink.Peer, Station: d.mac.String()}, first) {
		_ = unix.Close(first)
	}
	if !d.tell(agentlink.Message{Kind: agentlink.Peer, Station: l.mac.String(), Listen: true}, second) {
		_ = unix.Close(second)
	}
}

// pair makes the two ends of a connection.
func pair() (ours, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	return fds[0], fds[1], os.NewSyscallError("socketpair", err)
}

// printable has what a program says about itself in a form that a terminal can show.
func printable(s string) string {
	b := make([]byte, 0, maxProgram)
	for i := 0; i < len(s) && len(b) < maxProgram; i++ {
		if s[i] > ' ' && s[i] < 0x7f {
			b = append(b, s[i])
		}
	}
	return string(b)
}
