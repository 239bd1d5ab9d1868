package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/agent/share"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
)

// This file is about NICs with Trapeze's own data sheet. A client has a part of one, which is a PCI function behind
// vfio-user, on the connection by which it has asked.

// The mappings and files of a client, each of which is a mapping of the agent too.
const partRanges, partFiles = 8192, 1024

// ErrNotPassable: a NIC that no other agent can take over.
var ErrNotPassable = errors.New("its NIC cannot be taken over")

// passable reports whether an agent with this file can replace another, and be replaced. The device knows the memory of
// clients by mappings that end with the agent's own use of it.
func (c *Config) passable() error {
	for _, n := range c.NICs {
		if n.device() {
			return fmt.Errorf("%w: %s at %s is a device of Trapeze's own; stop the agent that runs, and start the new one without --replace", ErrNotPassable, n.Name, n.Address)
		}
	}
	return nil
}

// most bounds the clients of the NIC.
func (n *nic) most() int {
	if n.device() {
		return share.MaxParts
	}
	return maxClients
}

// openDevice opens a PCI function. It need not be the one from before, whose clients have gone.
func (n *nic) openDevice(ctx context.Context) error {
	d, err := share.Open(ctx, n.Address, n.log)
	if err == nil {
		n.whole.Store(d)
	}
	return err
}

// station is that of the NIC; of a PCI function that has failed it is zero.
func (n *nic) station() datasheet.MAC {
	if d := n.whole.Load(); d != nil {
		return d.MAC()
	}
	return n.mac
}

// frame is the largest frame of the NIC in bytes.
func (n *nic) frame() int {
	if d := n.whole.Load(); d != nil {
		return d.MTU()
	}
	return n.mtu
}

// tend looks after a PCI function until ctx ends: one that has failed is opened anew, once its clients have gone.
func (a *Agent) tend(ctx context.Context, n *nic) {
	for ctx.Err() == nil {
		d := n.whole.Load()
		if d == nil {
			a.mend(ctx, n)
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-d.Failed():
		}
		a.log.Error("a NIC has failed; its clients are let go", "nic", n.Name)
		a.mu.Lock()
		n.whole.Store(nil) // no program gets a part of it from now on
		a.mu.Unlock()
		for a.users(d) > 0 {
			time.Sleep(firstMend) // serveDevice lets them go
		}
		if err := d.Close(); err != nil {
			a.log.Warn("cannot close a NIC that has failed well", "nic", n.Name, "error", err)
		}
	}
}

// users counts the clients that have a part of a device.
func (a *Agent) users(d *share.NIC) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count(func(c *client) bool { return c.device == d })
}

// cut gives a client its part of the NIC.
func (a *Agent) cut(l *client) error {
	// The client counts as a user of the device, and the device stays open, before its part is made.
	a.mu.Lock()
	l.device = l.nic.whole.Load()
	a.mu.Unlock()
	if l.device == nil {
		return refuseWith(unix.EAGAIN, fmt.Sprintf("NIC %s has failed, and is being opened again", l.nic.Name))
	}
	part, err := l.device.Part(share.Limits{VIs: l.vis})
	if errors.Is(err, share.ErrFull) {
		return refuseWith(unix.EAGAIN, fmt.Sprintf("NIC %s: %v", l.nic.Name, err))
	}
	if err != nil {
		return refuseWith(unix.EMFILE, "it has no descriptors or memory left")
	}
	err = l.conn.Send(agentlink.Message{Kind: agentlink.Welcome, Version: agentlink.Version, NIC: l.nic.Name, Station: l.device.MAC().String(),
		MTU: l.device.MTU(), VIs: l.vis, Memory: l.memory, Device: true})
	if err != nil {
		return errors.Join(err, part.Close())
	}
	l.part = part
	return nil
}

// serveDevice serves a client of a PCI function until it leaves, the device fails or ctx ends.
func (a *Agent) serveDevice(ctx context.Context, l *client) {
	a.log.Info("client", "nic", l.nic.Name, "pid", l.who.pid, "uid", l.who.uid, "program", l.program, "grant", l.grant.Name)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.part.Gone():
		case <-l.device.Failed():
		case <-ctx.Done():
		}
		cancel()
	}()
	o := vfiouser.ServerOptions{Logger: a.log}
	o.Limits.Ranges, o.Limits.Files, o.Limits.Bytes, o.Limits.Sealed = partRanges, partFiles, l.memory, true
	server, err := vfiouser.NewServer(l.part, o)
	if err != nil {
		a.log.Error("a part of a NIC cannot be served", "nic", l.nic.Name, "error", err)
	} else {
		server.ServeConn(ctx, l.conn.Socket())
	}
	a.dismiss(l)
}

// dismissPart ends a client's use of its part. What the device knew of it is gone when the client is forgotten.
func (a *Agent) dismissPart(l *client) {
	if err := l.part.Close(); err != nil {
		a.log.Warn("a client of a device has left something", "nic", l.nic.Name, "pid", l.who.pid, "error", err)
	}
	a.leave(l)
	l.conn.Leave()
	a.log.Info("client gone", "nic", l.nic.Name, "station", l.mac, "pid", l.who.pid)
}

// state is one of those of agentlink.NIC.
func (n *nic) state() string {
	d, port := n.whole.Load(), n.port.Load()
	switch {
	case n.local || d != nil && d.LinkUp() || port != nil && port.LinkUp():
		return agentlink.Up
	case d != nil || port != nil:
		return agentlink.Down
	}
	return agentlink.Lost
}
