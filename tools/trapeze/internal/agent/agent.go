// Package agent owns NICs and gives programs without rights a share of them (docs/agent.md).
//
// A client runs the engine of its NIC itself. Its frames go through memory that it shares with the
// agent, which checks them and passes them on: to other clients, or to the NIC's port. Two clients
// whose grants allow it share memory with each other.
package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
)

const (
	// firstMessage bounds how long a program may take to say what it wants.
	firstMessage = 2 * time.Second
	// maxWaiting and maxWaitingOfUser bound programs that have connected and said nothing yet.
	maxWaiting, maxWaitingOfUser = 512, 64
)

// Agent is one that has its NICs open.
type Agent struct {
	config   *Config
	log      *slog.Logger
	nics     []*nic
	listener *unixsocket.Listener

	guests   sync.WaitGroup // programs that have connected, until they have a NIC
	visiting atomic.Int32   // how many these are
	ended    chan error

	replacing sync.Mutex // held during a take-over
	successor int32      // the process that has taken over, or -1 if that is in another PID namespace

	mu      sync.Mutex
	work    *work          // nil while there is none
	clients []*client      // also those that are about to come
	waiting map[uint32]int // programs of each user that have said nothing yet
	silent  int            // all of those
}

func newAgent(c *Config, log *slog.Logger) *Agent {
	a := &Agent{config: c, log: log, waiting: map[uint32]int{}, ended: make(chan error, 1)}
	for _, n := range c.NICs {
		a.nics = append(a.nics, newNIC(n))
	}
	return a
}

// New opens the NICs of a file. Errors are a *vfio.Error.
func New(ctx context.Context, c *Config, log *slog.Logger) (*Agent, error) {
	a := newAgent(c, log)
	for _, n := range a.nics {
		if err := n.open(ctx, false); err != nil {
			return nil, errors.Join(err, a.Close())
		}
	}
	return a, nil
}

// Close closes the NICs. No Serve runs any more, or has begun.
func (a *Agent) Close() (err error) {
	for _, c := range a.all() {
		a.dismiss(c)
	}
	for _, n := range a.nics {
		err = errors.Join(err, n.shut())
	}
	return err
}

// Listen makes the socket of the file. It fails with EADDRINUSE if another agent listens there.
func Listen(ctx context.Context, c *Config) (*unixsocket.Listener, error) {
	// systemd's RuntimeDirectory has made the folder already.
	if folder := filepath.Dir(c.Socket); c.Socket == agentlink.DefaultSocket {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return nil, err
		}
	}
	l, err := unixsocket.Listen(ctx, "unix", c.Socket, c.Mode)
	if err != nil || c.Socket[0] == '@' || c.GID < 0 {
		return l, err
	}
	if err := os.Lchown(c.Socket, -1, c.GID); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve gives NICs to programs until ctx ends or another agent has taken over, which are no errors, or
// the listener fails. It closes the listener, and when it returns no client is left.
func (a *Agent) Serve(ctx context.Context, l *unixsocket.Listener) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	a.listener = l
	a.start(ctx)
	select {
	case <-ctx.Done():
	case err = <-a.ended:
	}
	cancel()
	a.pause()
	a.guests.Wait()
	a.pause() // what a take-over that has failed has begun
	for _, c := range a.all() {
		a.dismiss(c)
	}
	if a.successor != 0 {
		return errors.Join(err, l.Leave())
	}
	_ = l.Close() // what cannot be removed matters to the next one there
	return err
}

// Successor returns the process that has taken over, and false if there is none. Its number is -1 if it
// is in another PID namespace. It may be called after Serve.
func (a *Agent) Successor() (pid int32, ok bool) { return a.successor, a.successor != 0 }

// Moves returns how often each NIC has looked for frames: of one that is stuck, the number stays.
func (a *Agent) Moves() (turns []uint64) {
	for _, n := range a.nics {
		turns = append(turns, n.turns.Load())
	}
	return turns
}

// serve hears what a program wants.
func (a *Agent) serve(ctx context.Context, found *net.UnixConn) {
	a.visiting.Add(1)
	defer a.visiting.Add(-1)
	c := agentlink.New(found)
	stop := whenDone(ctx, c.Interrupt)
	lent := a.answer(ctx, c)
	stop()
	switch {
	case lent == nil:
		c.Close()
	case !a.enter(lent):
		a.dismiss(lent)
	}
}

// hears reports whether one more program of a user may say what it wants. heard is called then.
func (a *Agent) hears(uid uint32) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.silent >= maxWaiting || a.waiting[uid] >= maxWaitingOfUser {
		return false
	}
	a.silent++
	a.waiting[uid]++
	return true
}

func (a *Agent) heard(uid uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.silent--
	if a.waiting[uid]--; a.waiting[uid] == 0 {
		delete(a.waiting, uid)
	}
}

// answer answers a program. It returns the client that it is, nil if it is none.
func (a *Agent) answer(ctx context.Context, c *agentlink.Conn) (lent *client) {
	who, err := identify(c.UnixConn)
	var m agentlink.Message
	fd := -1
	if err == nil {
		if !a.hears(who.uid) {
			return nil
		}
		m, fd, err = c.Receive(time.Now().Add(firstMessage))
		if err == nil {
			who.inspect(c.UnixConn) // within hears: it takes a thread
		}
		a.heard(who.uid)
	}
	if fd >= 0 {
		_ = passedfd.Close(fd) // no message has one
	}
	if err != nil {
		a.log.Debug("a client has said nothing that can be read", "error", err)
		return nil
	}
	switch {
	case m.Version != agentlink.Version:
		err = refuse(fmt.Sprintf("it speaks version %d of the protocol, and you %d", agentlink.Version, m.Version))
	case m.Kind == agentlink.List:
		_ = c.Send(agentlink.Message{Kind: agentlink.List, Version: agentlink.Version, NICs: a.states(), Clients: a.list(who)})
		return nil
	case m.Kind == agentlink.Open:
		lent, err = a.lend(ctx, c, who, &m)
	case m.Kind == agentlink.Replace:
		err = a.handOver(ctx, c, who)
	default:
		err = refuse(fmt.Sprintf("it knows no request %q", m.Kind))
	}
	if no, ok := errors.AsType[*agentlink.RefusedError](err); ok {
		a.log.Info("refused", "pid", who.pid, "uid", who.uid, "nic", m.NIC, "why", no.Why)
		_ = c.Send(agentlink.Message{Kind: agentlink.Refuse, Version: agentlink.Version, Why: no.Why, Errno: uint32(no.Errno)})
	}
	return lent
}

// states says which NICs there are, and how they are.
func (a *Agent) states() (list []agentlink.NIC) {
	for _, n := range a.nics {
		list = append(list, agentlink.NIC{Name: n.Name, State: n.state()})
	}
	return list
}

// list has the clients that someone may see: root and the agent's user all, others their own.
func (a *Agent) list(who *identity) []agentlink.Client {
	list := []agentlink.Client{}
	for _, n := range a.nics {
		t := n.table.Load().list
		for _, c := range t {
			if who.uid == 0 || who.uid == uint32(os.Geteuid()) || who.uid == c.who.uid {
				list = append(list, c.report(t))
			}
		}
	}
	slices.SortFunc(list, func(x, y agentlink.Client) int { return int(x.PID) - int(y.PID) })
	return list
}
