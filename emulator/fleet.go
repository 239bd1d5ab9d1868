package emulator

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// Fleet makes NICs that are to be put behind sockets, one for each name, on one
// wire: they run on threads, and their doorbells are memory unless the address
// says otherwise. address is one of scheme emu. Without a wire in it one NIC is
// on a loop, and several are on a switch in memory; a wire that leaves the process is for one NIC.
// Errors wrap vfio.ErrBadAddress or an operating system error.
func Fleet(ctx context.Context, address string, names []string) (_ []*Device, err error) {
	a, err := vfio.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	s, err := parseFleet(a, len(names))
	if err != nil {
		return nil, badAddress(a, err)
	}
	ports, err := s.fleetWires(ctx, len(names))
	if err != nil {
		return nil, &vfio.Error{Op: "open", Device: address, Err: err, Hint: s.wireHint(err)}
	}
	var made []*Device
	defer func() {
		if err != nil {
			for _, d := range made {
				err = errors.Join(err, d.Close())
			}
			for _, p := range ports[len(made):] {
				err = errors.Join(err, p.Close())
			}
		}
	}()
	for i, name := range names {
		s.name = name
		d, err := s.plug(ports[i])
		if err != nil {
			return nil, err
		}
		made = append(made, d)
		s.General.Faults.Seed++ // each NIC has faults of its own
	}
	return made, nil
}

// parseFleet checks the address of n NICs.
func parseFleet(a vfio.Address, n int) (*settings, error) {
	if a.Scheme != Scheme && a.Scheme != EthernetScheme {
		return nil, fmt.Errorf("it starts with %q, not with %q or %q", a.Scheme+":", Scheme+":", EthernetScheme+":")
	}
	if n < 1 || n > wire.MaxSwitchPorts {
		return nil, fmt.Errorf("%d NICs: one wire takes 1 to %d", n, wire.MaxSwitchPorts)
	}
	s, err := parseSettings(a)
	if err != nil {
		return nil, err
	}
	switch {
	case s.kind == wireAgent:
		return nil, errors.New("option wire: a program opens agent: itself")
	case s.kind == wireMemory:
		return nil, errors.New("option wire: mem: is for NICs in one process; leave it out, or use udp://HOST:PORT")
	case n > 1 && (a.Options.Has("wire") || s.kind == wireNIC):
		_, called := s.kind.form()
		return nil, fmt.Errorf("option wire: %s takes one NIC; leave it out to have several on a switch in memory", called)
	case a.Options.Has("mac") && n > 1:
		return nil, errors.New("option mac: several NICs cannot have one address")
	case a.Options.Get("engine") == "inline":
		return nil, errors.New("option engine: a NIC behind a socket runs on a thread, as no driver polls it")
	}
	s.General.Thread = true
	if s.General.Doorbells == DoorbellsDefault {
		s.General.Doorbells = DoorbellsMapped
	}
	return s, nil
}

// fleetWires makes the ends of the wire of n NICs: one of any kind, or several of a switch.
func (s *settings) fleetWires(ctx context.Context, n int) ([]wire.Port, error) {
	if n > 1 {
		return wire.NewSwitch(n, wire.SwitchOptions{MemoryOptions: wire.MemoryOptions{MTU: s.General.MTU}})
	}
	p, err := s.wire(ctx)
	return []wire.Port{p}, err
}
