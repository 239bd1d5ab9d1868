package wire

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// AgentOptions are the choices of NewAgent. The zero value asks for what the agent gives.
type AgentOptions struct {
	// Socket of the agent; agentlink.Socket() if empty.
	Socket string
	// NIC is a name in the agent's file; empty for the first that is granted.
	NIC string
	// MAC of the station; if zero, the agent chooses one.
	MAC datasheet.MAC
	// MTU is the largest frame in bytes, at most that of the NIC; that if zero.
	MTU int
	// The program needs so many VIs, and Memory in bytes; as many as are granted if zero.
	VIs    uint32
	Memory uint64
}

// AgentGrant has the limits that the agent has set.
type AgentGrant struct {
	NIC    string
	MAC    datasheet.MAC
	VIs    uint32
	Memory uint64 // bytes that may be registered; 0: no limit
}

const (
	// agentTimeout bounds what the agent may take to answer, and a wire to be set up.
	agentTimeout = 5 * time.Second
	// agentNames bounds the wait for names of other clients.
	agentNames = 20 * time.Millisecond
	// agentRetry and agentLastRetry bound the pause before the agent is looked for again.
	agentRetry, agentLastRetry = 10 * time.Millisecond, 500 * time.Millisecond
)

// agentSession is a port's part in the NIC of an agent. While the agent is away the wires to other
// clients stay, and frames to all other stations are lost.
type agentSession struct {
	port    *host
	options AgentOptions
	grant   AgentGrant
	told    chan struct{} // has one for each client that the agent has named, up to peers
	peers   int           // are going to be named
}

// NewAgent makes a port of a NIC of the host's agent. It fails with ErrOptions or an *Error, which wraps agentlink.RefusedError if the agent refuses.
func NewAgent(ctx context.Context, o AgentOptions) (Port, AgentGrant, error) {
	if err := o.Check(); err != nil {
		return nil, AgentGrant{}, err
	}
	o.Socket = cmp.Or(o.Socket, agentlink.Socket())
	s := &agentSession{options: o, told: make(chan struct{}, hostMembers)}
	c, up, err := s.ask(ctx)
	if err != nil {
		return nil, AgentGrant{}, &Error{Op: "open", Device: "agent:" + o.NIC, Err: err, Hint: agentHint(o.Socket, err)}
	}
	// Claim comes next, after which others may find the port.
	s.port.join = func(mac datasheet.MAC) (func() error, error) {
		if mac != s.grant.MAC {
			return nil, fmt.Errorf("%w: station %v, and the agent has given %v", ErrOptions, mac, s.grant.MAC)
		}
		return func() error { return nil }, nil
	}
	s.port.add(up)
	s.port.running.Go(func() { s.keep(c, up) })
	s.meet(ctx)
	return s.port, s.grant, nil
}

// meet waits until the agent has named the clients with which memory is to be shared, so that connections
// to them wait for that.
func (s *agentSession) meet(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, agentNames)
	defer cancel()
	for range min(s.peers, hostMembers) {
		select {
		case <-s.told:
		case <-ctx.Done():
			return
		}
	}
}

// Check reports what NewAgent would refuse, as an error that wraps ErrOptions.
func (o AgentOptions) Check() error {
	if o.NIC != "" && !hostNames.MatchString(o.NIC) {
		return fmt.Errorf("%w: name %q of an agent's NIC: it has 1 to 32 letters, digits, dots, dashes and underscores", ErrOptions, o.NIC)
	}
	return checkMTU(cmp.Or(o.MTU, shm.DefaultMTU))
}

func agentHint(socket string, err error) string {
	var refused *agentlink.RefusedError
	switch {
	case errors.As(err, &refused):
		return "the agent's file says who may have what: trapeze agent --check shows it"
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED):
		return "start trapeze agent, or set " + agentlink.Variable + " to the path of its socket: none listens at " + socket
	case errors.Is(err, unix.EACCES):
		return "the permissions of " + socket + " do not let this user in: mode and group stand in the agent's file"
	}
	return ""
}

// ask asks the agent for the NIC, and sets up the wire to it. The first time it makes the port.
func (s *agentSession) ask(ctx context.Context) (*agentlink.Conn, *hostMember, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	var d net.Dialer
	found, err := d.DialContext(ctx, "unix", s.options.Socket)
	if err != nil {
		return nil, nil, err
	}
	c := agentlink.New(found.(*net.UnixConn))
	up, err := s.open(ctx, c)
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return c, up, nil
}

func (s *agentSession) open(ctx context.Context, c *agentlink.Conn) (*hostMember, error) {
	request := agentlink.Message{Kind: agentlink.Open, Version: agentlink.Version, NIC: s.options.NIC, MTU: s.options.MTU,
		VIs: s.options.VIs, Memory: s.options.Memory, Program: filepath.Base(os.Args[0])}
	if s.options.MAC != (datasheet.MAC{}) {
		request.Station = s.options.MAC.String()
	}
	if err := c.Send(request, -1); err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	m, fd, err := c.Receive(deadline)
	switch {
	case err != nil:
		return nil, err
	case m.Kind == agentlink.Refuse:
		_ = passedfd.Close(fd)
		return nil, &agentlink.RefusedError{Why: m.Why, Errno: unix.Errno(m.Errno)}
	case m.Kind != agentlink.Welcome || m.Version != agentlink.Version || fd < 0:
		_ = passedfd.Close(fd)
		return nil, fmt.Errorf("%w: kind %q of version %d, want %q of version %d with a descriptor", agentlink.ErrMessage, m.Kind, m.Version, agentlink.Welcome, agentlink.Version)
	}
	mac, err := parseStation(m.Station)
	if err == nil {
		err = checkMTU(m.MTU)
	}
	if err == nil && s.port != nil && (mac != s.grant.MAC || m.MTU != s.port.Longest || m.Checksum != s.port.Damages) {
		err = fmt.Errorf("%w: the NIC is another one now", ErrGone)
	}
	if err != nil {
		_ = passedfd.Close(fd)
		return nil, err
	}
	found, err := unixsocket.TakeConn(fd, unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", agentlink.ErrMessage, err)
	}
	w, err := shm.Adopt(ctx, found, shm.Options{Role: shm.RoleConnect, MTU: m.MTU})
	if err != nil {
		return nil, err
	}
	if s.port == nil {
		s.port = newHost(HostOptions{MTU: m.MTU})
		s.port.Damages = m.Checksum
		s.peers = m.Peers
		s.grant = AgentGrant{NIC: m.NIC, MAC: mac, VIs: m.VIs, Memory: m.Memory}
		s.options.MAC, s.options.NIC, s.options.MTU, s.options.VIs, s.options.Memory = mac, m.NIC, m.MTU, m.VIs, m.Memory
	}
	return &hostMember{many: true, wire: w, parts: w, shared: w, mark: noMark}, nil
}

func parseStation(text string) (mac datasheet.MAC, err error) {
	b, err := net.ParseMAC(text)
	if err != nil || len(b) != len(mac) || datasheet.MAC(b).IsMulticast() || datasheet.MAC(b) == mac {
		return mac, fmt.Errorf("%w: %q is no station", agentlink.ErrMessage, text)
	}
	return datasheet.MAC(b), nil
}

// keep follows the agent until the port is closed.
func (s *agentSession) keep(c *agentlink.Conn, up *hostMember) {
	for {
		stop := context.AfterFunc(s.port.ctx, c.Close)
		s.follow(c)
		stop()
		c.Close()
		s.port.remove(up)
		for retry := agentRetry; ; retry = min(2*retry, agentLastRetry) {
			if pause.For(s.port.ctx, retry) != nil {
				return
			}
			var err error
			if c, up, err = s.ask(s.port.ctx); err != nil {
				continue
			}
			if !s.port.add(up) {
				_ = up.wire.Close()
				c.Close()
				return // the port is closed
			}
			break
		}
	}
}

// follow takes what the agent says, until it is gone.
func (s *agentSession) follow(c *agentlink.Conn) {
	for {
		m, fd, err := c.Receive(time.Time{})
		if err != nil {
			return
		}
		mac, err := parseStation(m.Station)
		if m.Kind != agentlink.Peer || err != nil || fd < 0 || mac == s.grant.MAC || len(*s.port.members.Load()) > hostMembers {
			_ = passedfd.Close(fd)
			s.port.refused.Add(1)
			continue
		}
		wire, err := unixsocket.TakeConn(fd, unix.SOCK_SEQPACKET)
		if err != nil {
			s.port.refused.Add(1)
			continue
		}
		s.port.meet(mac)
		select {
		case s.told <- struct{}{}:
		default:
		}
		role := shm.RoleConnect
		if m.Listen {
			role = shm.RoleListen
		}
		s.port.running.Go(func() { s.port.share(mac, wire, role) })
	}
}
