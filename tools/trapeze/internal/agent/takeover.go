package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/wire"
)

// takeover is a take-over as the new agent sees it.
type takeover struct {
	agent    *Agent
	conn     *agentlink.Conn
	listener *unixsocket.Listener
	state    *state
	clients  []*taken
}

// taken is a client of the old agent.
type taken struct {
	state *clientState
	who   *identity
	conn  *agentlink.Conn
	port  *wire.SHM // paused
	ours  *client   // nil if the file grants it nothing any more
}

// TakeOver opens the NICs of a file, and has the clients and the socket of the agent that listens there.
// Serve comes next. If it fails, the old agent goes on. Errors are of the connection, an *agentlink.RefusedError,
// a *StateError or a *vfio.Error.
func TakeOver(ctx context.Context, c *Config, log *slog.Logger) (_ *Agent, _ *unixsocket.Listener, err error) {
	_ = wire.SHMState{}.Check() // once it takes long: before the old agent pauses
	var d net.Dialer
	dialled, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	found, err := d.DialContext(dialled, "unix", c.Socket)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: no agent is to be replaced there; start this one without --replace", err)
	}
	t := &takeover{agent: newAgent(c, log), conn: agentlink.New(found.(*net.UnixConn))}
	defer t.conn.Leave() // Close would shut down what the old agent has passed and this one has not read
	stop := context.AfterFunc(ctx, t.conn.Interrupt)
	defer stop()
	if err := t.run(ctx); err != nil {
		t.leave()
		var said *agentlink.RefusedError
		if !errors.As(err, &said) { // the old agent says why it goes on
			_ = t.conn.Send(agentlink.Message{Kind: agentlink.Refuse, Why: err.Error()})
		}
		return nil, nil, err
	}
	t.begin()
	return t.agent, t.listener, nil
}

// run takes the steps up to Over, behind which all is this agent's.
func (t *takeover) run(ctx context.Context) error {
	who, err := unixsocket.Peer(t.conn.UnixConn)
	if err != nil {
		return err
	}
	if who.Uid != 0 && who.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%w: the socket is that of user %d, and neither this user's nor root's", ErrState, who.Uid)
	}
	if err := t.conn.Send(agentlink.Message{Kind: agentlink.Replace, Version: agentlink.Version}); err != nil {
		return err
	}
	if err := t.receive(); err != nil {
		return err
	}
	if err := t.conn.Send(agentlink.Message{Kind: agentlink.Checked}); err != nil {
		return err
	}
	if err := expect(t.conn, agentlink.Closed, stepTime); err != nil {
		return err
	}
	opening, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	for _, n := range t.agent.nics {
		if err := n.open(opening, false); err != nil {
			return err
		}
	}
	for _, c := range t.clients {
		t.admit(c)
	}
	if err := t.conn.Send(agentlink.Message{Kind: agentlink.Opened}); err != nil {
		return err
	}
	return expect(t.conn, agentlink.Over, stepTime)
}

// receive takes and checks what the old agent has.
func (t *takeover) receive() error {
	// The old agent waits for programs that are about to have a NIC before it answers.
	text, fds, err := part(t.conn, agentlink.State, visitTime+stepTime)
	if err != nil {
		return err
	}
	t.state, err = parseState(text)
	if err == nil && len(fds) != 1 {
		err = badState("state", "%d descriptors, want that of the socket", len(fds))
	}
	if err != nil {
		agentlink.Drop(fds)
		return err
	}
	if t.listener, err = unixsocket.Passed(fds[0]); err != nil {
		return &StateError{"state", err}
	}
	for i := range t.state.Clients {
		text, fds, err := part(t.conn, agentlink.Lent, stepTime)
		if err != nil {
			return err
		}
		c, err := takeClient(text, fds, i)
		if err != nil {
			return err
		}
		t.clients = append(t.clients, c)
	}
	return nil
}

// takeClient makes client number i of what the old agent has passed. It owns the descriptors.
func takeClient(text []byte, fds []int, i int) (_ *taken, err error) {
	of := fmt.Sprintf("client[%d]", i)
	defer func() {
		if err != nil {
			agentlink.Drop(fds)
		}
	}()
	s, err := parseClient(text, i)
	if err != nil {
		return nil, err
	}
	if len(fds) < 2 {
		return nil, badState(of, "%d descriptors, want 3 at least", len(fds))
	}
	next := func() (fd int) {
		fd, fds = fds[0], fds[1:]
		return fd
	}
	control, err := unixsocket.TakeConn(next(), unix.SOCK_STREAM)
	if err != nil {
		return nil, &StateError{of, err}
	}
	c := &taken{state: s, conn: agentlink.New(control)}
	defer func() {
		if err != nil {
			c.conn.Leave()
		}
	}()
	if c.who, err = identify(control); err != nil {
		return nil, &StateError{of, err}
	}
	c.who.inspect(control)
	conn, err := unixsocket.TakeConn(next(), unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, &StateError{of + ".wire", err}
	}
	rest := fds
	fds = nil
	if c.port, err = s.Wire.Restore(conn, rest); err != nil {
		return nil, &StateError{of + ".wire", err}
	}
	return c, nil
}

// admit gives a client what it had, if the file still grants it that.
func (t *takeover) admit(c *taken) {
	l, err := t.agent.admit(c.who, &agentlink.Message{NIC: c.state.NIC, Station: c.state.Station, VIs: c.state.VIs, Memory: c.state.Memory,
		MTU: c.port.MTU(), Program: c.state.Program})
	if err == nil && l.nic.checksum != c.state.Checksum {
		t.agent.forget(l)
		err = fmt.Errorf("NIC %s is another one now", l.nic.Name)
	}
	if err != nil {
		t.agent.log.Warn("a client is let go", "nic", c.state.NIC, "station", c.state.Station, "pid", c.who.pid, "error", err)
		return
	}
	l.conn, l.port = c.conn, c.port
	l.setStats(&c.state.Counters)
	c.ours = l
}

// begin tells the old agent that all is this one's, and has the clients go on.
func (t *takeover) begin() {
	a := t.agent
	_ = t.conn.Send(agentlink.Message{Kind: agentlink.Serving}) // if it is gone, so much the better
	for _, s := range t.state.NICs {
		for _, n := range a.nics {
			if n.Name == s.Name {
				n.received.Store(s.Received)
				n.unknown.Store(s.Unknown)
			}
		}
	}
	for _, c := range t.clients {
		if c.ours == nil {
			_ = c.port.Close()
			c.conn.Close()
			continue
		}
		c.port.Resume()
		c.port.SetWake(c.ours.nic.rouse)
		c.ours.nic.add(c.ours)
	}
	if err := t.state.Supervisor.adopt(); err != nil {
		a.log.Warn("cannot tell the service manager of the other agent", "error", err)
	}
	if t.state.Removes {
		if err := t.listener.Remove(); err != nil {
			a.log.Warn("the socket has no path any more", "error", err)
		}
	}
}

// leave closes what was taken, and not for the old agent, which goes on with it.
func (t *takeover) leave() {
	for _, c := range t.clients {
		c.port.Leave()
		c.conn.Leave()
	}
	if t.listener != nil {
		_ = t.listener.Leave()
	}
	if err := t.agent.Close(); err != nil {
		t.agent.log.Warn("cannot close the NICs well", "error", err)
	}
}
