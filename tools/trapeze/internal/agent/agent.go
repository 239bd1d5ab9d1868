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
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
)

const (
	// firstMessage bounds how long a program may take to say what it wants.
	firstMessage = 2 * time.Second
	// maxWaiting bounds programs that have connected and not been answered.
	maxWaiting = 64
	// acceptPause is the pause when there are no descriptors for another client.
	acceptPause = 100 * time.Millisecond
)

// Agent is one that has its NICs open.
type Agent struct {
	config *Config
	log    *slog.Logger
	nics   []*nic

	waiting chan struct{}

	mu      sync.Mutex
	clients []*client // also those that are about to come
}

// New opens the NICs of a file. Errors are a *vfio.Error.
func New(ctx context.Context, c *Config, log *slog.Logger) (_ *Agent, err error) {
	a := &Agent{config: c, log: log, waiting: make(chan struct{}, maxWaiting)}
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	for _, n := range c.NICs {
		port, err := emulator.OpenWire(ctx, n.Address)
		if err != nil {
			return nil, err
		}
		a.nics = append(a.nics, newNIC(n, port))
	}
	return a, nil
}

// Close closes the NICs. No Serve runs any more.
func (a *Agent) Close() (err error) {
	for _, n := range a.nics {
		if n.port != nil {
			err = errors.Join(err, n.port.Close())
		}
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
	l, err := unixsocket.Listen(ctx, "unix", c.Socket, 0o600)
	if err != nil || c.Socket[0] == '@' {
		return l, err
	}
	if c.GID >= 0 {
		err = os.Lchown(c.Socket, -1, c.GID)
	}
	if err = errors.Join(err, os.Chmod(c.Socket, c.Mode)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Serve gives NICs to programs until ctx ends, which is no error, or the listener fails. It closes
// the listener, and when it returns no client is left.
func (a *Agent) Serve(ctx context.Context, l *unixsocket.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	closed := make(chan struct{})
	context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = l.Close() // what cannot be removed matters to the next one there
	})
	var running sync.WaitGroup
	passing, end := context.WithCancel(context.WithoutCancel(ctx)) // longer than there are clients
	for _, n := range a.nics {
		running.Go(func() { n.run(passing) })
	}
	var err error
	var clients sync.WaitGroup
	for ctx.Err() == nil {
		var c *net.UnixConn
		if err = passedfd.ErrFull; !passedfd.Full() {
			c, err = l.AcceptUnix()
		}
		switch {
		case err == nil:
			clients.Go(func() { a.serve(ctx, c) })
			continue
		case errors.Is(err, net.ErrClosed):
		default: // out of descriptors, or the like
			a.log.Warn("cannot accept a client", "error", err)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		break
	}
	if ctx.Err() != nil {
		err = nil
	}
	cancel()
	clients.Wait()
	end()
	running.Wait()
	<-closed
	return err
}

// Moves returns how often each NIC has looked for frames: of one that is stuck, the number stays.
func (a *Agent) Moves() (turns []uint64) {
	for _, n := range a.nics {
		turns = append(turns, n.turns.Load())
	}
	return turns
}

// serve serves one program until it leaves.
func (a *Agent) serve(ctx context.Context, found *net.UnixConn) {
	c := agentlink.New(found)
	defer c.Close()
	select {
	case a.waiting <- struct{}{}:
	default:
		return
	}
	who, err := identify(found)
	var m agentlink.Message
	fd := -1
	if err == nil {
		m, fd, err = c.Receive(time.Now().Add(firstMessage))
	}
	<-a.waiting
	if fd >= 0 {
		_ = passedfd.Close(fd) // no message has one
	}
	if err != nil {
		a.log.Debug("a client has said nothing that can be read", "error", err)
		return
	}
	switch {
	case m.Version != agentlink.Version:
		err = refuse(fmt.Sprintf("it speaks version %d of the protocol, and you %d", agentlink.Version, m.Version))
	case m.Kind == agentlink.List:
		_ = c.Send(agentlink.Message{Kind: agentlink.List, Version: agentlink.Version, Clients: a.list(who)}, -1)
		return
	case m.Kind == agentlink.Open:
		err = a.lend(ctx, c, who, &m)
	default:
		err = refuse(fmt.Sprintf("it knows no request %q", m.Kind))
	}
	var no *agentlink.RefusedError
	if errors.As(err, &no) {
		a.log.Info("refused", "pid", who.pid, "uid", who.uid, "nic", m.NIC, "why", no.Why)
		_ = c.Send(agentlink.Message{Kind: agentlink.Refuse, Version: agentlink.Version, Why: no.Why, Errno: uint32(no.Errno)}, -1)
	}
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
