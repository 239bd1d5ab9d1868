package emulator

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// Fleet makes NICs that are to be put behind sockets, one for each name, on one
// wire: they run on threads, and their doorbells are memory unless the address
// says otherwise. address is one of scheme emu. Without a wire in it one NIC is
// on a loop, and several are on a switch in memory; a UDP or shm wire is for one NIC.
// On a memif each has an interface of its own, with ids from that of the address on.
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
		s.device.Name = name
		d, err := s.plug(ports[i])
		if err != nil {
			return nil, err
		}
		made = append(made, d)
		s.faults.Seed++ // each NIC has faults of its own
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
	case s.kind != wireMemif && n > 1 && (a.Options.Has("wire") || s.kind == wireNIC):
		_, called := s.kind.form()
		return nil, fmt.Errorf("option wire: %s takes one NIC; leave it out to have several on a switch in memory", called)
	case s.kind == wireMemif && uint64(s.memif.ID)+uint64(n-1) > math.MaxUint32:
		return nil, fmt.Errorf("option id: %d NICs from %d on have ids beyond %d", n, s.memif.ID, uint32(math.MaxUint32))
	case a.Options.Has("mac") && n > 1:
		return nil, errors.New("option mac: several NICs cannot have one address")
	case a.Options.Get("engine") == "inline":
		return nil, errors.New("option engine: a NIC behind a socket runs on a thread, as no driver polls it")
	}
	s.device.Thread = true
	if s.device.Doorbells == DoorbellsDefault {
		s.device.Doorbells = DoorbellsMapped
	}
	return s, nil
}

// fleetWires makes the ends of the wire of n NICs: one of any kind, several of a memif,
// with ids in a row, or of a switch.
func (s *settings) fleetWires(ctx context.Context, n int) (ports []wire.Port, err error) {
	if n > 1 && s.kind != wireMemif {
		ends, err := wire.NewSwitch(n, wire.SwitchOptions{MemoryOptions: wire.MemoryOptions{MTU: s.mtu}})
		return ends, err
	}
	for range n {
		p, err := s.wire(ctx)
		if err != nil {
			for _, p := range ports {
				err = errors.Join(err, p.Close())
			}
			return nil, err
		}
		ports = append(ports, p)
		s.memif.ID++
	}
	return ports, nil
}
