package emulator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

type wireKind int

const (
	wireLoop wireKind = iota
	wireMemory
	wireHost
	wireUDP
	wireMemif
	wireShared
	wireNIC
	wireAgent
	wireKinds
)

// wireAddress is the value of option wire: where is the name of a memory wire, the HOST:PORT of a UDP one, the socket of a
// memif or of a wire in shared memory, and the whole address of a NIC.
type wireAddress struct {
	kind  wireKind
	where string
}

// wireForm is the form of the address of a kind of wire.
type wireForm struct {
	kind                  wireKind
	prefix, where, called string
}

// wireForms are the values of option wire, and what errors call such a wire.
var wireForms = []wireForm{
	{wireLoop, "loop", "", "a loop"},
	{wireMemory, "mem:", "NAME", "a memory wire"},
	{wireHost, "host:", "NAME", "a wire of this host"},
	{wireUDP, "udp://", "HOST:PORT", "a UDP wire"},
	{wireMemif, "memif:", "PATH", "a memif"},
	{wireShared, "shm:", "PATH", "a shm wire"},
	{wireNIC, "pci:", "FUNCTION", "a NIC as wire"},
	{wireNIC, "afxdp:", "INTERFACE", "a NIC as wire"},
	{wireNIC, "vhost-user:", "PATH", "a NIC as wire"},
	{wireNIC, "vfio-user:", "PATH", "a NIC as wire"},
	{wireAgent, "agent:", "NAME", "a NIC of the agent"},
	{wireAgent, "agent:", "", "a NIC of the agent"},
}

// form returns the first form of a wire of a kind, and what errors call it.
func (k wireKind) form() (form, called string) {
	i := slices.IndexFunc(wireForms, func(f wireForm) bool { return f.kind == k })
	return wireForms[i].prefix + wireForms[i].where, wireForms[i].called
}

// Set reads the value of option wire; of none, that of a loop.
func (w *wireAddress) Set(v string) error {
	var forms []string
	for _, f := range wireForms {
		if where, ok := strings.CutPrefix(v, f.prefix); ok && (where == "") == (f.where == "") {
			*w = wireAddress{f.kind, where}
			switch f.kind {
			case wireUDP:
				return checkHostPort(where)
			case wireNIC:
				w.where = v
			}
			return nil
		}
		forms = append(forms, f.prefix+f.where)
	}
	if wire.IsNICAddress(v) { // of a driver that is not ours
		*w = wireAddress{wireNIC, v}
		return nil
	}
	return fmt.Errorf("it is %s; PATH of memif: and shm: may be @NAME", strings.Join(forms, ", "))
}

func (s *settings) shmOptions() wire.SHMOptions {
	return wire.SHMOptions{Path: s.where, Role: s.shm.Role, MTU: s.General.MTU, Share: s.shm.Share > 0, ShareWrite: s.shm.Share == 2}
}

func (s *settings) hostOptions() wire.HostOptions {
	return wire.HostOptions{Name: s.where, MTU: s.General.MTU}
}

func (s *settings) agentOptions() wire.AgentOptions {
	return wire.AgentOptions{Socket: s.agent.Socket, NIC: s.where, MAC: s.General.MAC, MTU: s.General.MTU, VIs: s.General.VIs,
		Memory: uint64(s.agent.Memory)}
}

// checkWire checks what the wire takes, and reads the key of a UDP wire.
func (s *settings) checkWire() (err error) {
	switch s.kind {
	case wireUDP:
		if s.udp.KeyFile == "" {
			return nil
		}
		if s.udp.key, err = wire.ReadKey(s.udp.KeyFile); err != nil {
			return fmt.Errorf("option key: %w", err)
		}
	case wireMemif:
		return s.memif.Check()
	case wireShared:
		return s.shmOptions().Check()
	case wireHost:
		return s.hostOptions().Check()
	case wireAgent:
		return s.agentOptions().Check()
	case wireNIC:
		return s.nic.Check()
	}
	return nil
}

// wire makes the wire, which may say what station the device is and what it may have.
func (s *settings) wire(ctx context.Context) (wire.Port, error) {
	switch s.kind {
	case wireMemif:
		return wire.NewMemif(s.memif)
	case wireShared:
		return wire.NewSHM(ctx, s.shmOptions())
	case wireHost:
		return wire.NewHost(s.hostOptions())
	case wireUDP:
		return wire.NewUDP(ctx, wire.UDPOptions{Local: s.where, Peers: s.udp.Peers, MTU: s.General.MTU, Key: s.udp.key})
	case wireAgent:
		p, grant, err := wire.NewAgent(ctx, s.agentOptions())
		if err != nil {
			return nil, err
		}
		s.General.MAC, s.memory = grant.MAC, grant.Memory
		s.General.VIs = min(s.limits().Endpoints-1, grant.VIs) // endpoint 0 is reserved
		return p, nil
	case wireNIC:
		p, err := wire.NewNIC(ctx, s.nic)
		if err != nil {
			return nil, err
		}
		s.General.MAC = p.MAC()
		return p, nil
	}
	return wire.NewLoopback(wire.MemoryOptions{MTU: s.General.MTU})
}

func (s *settings) wireHint(err error) string {
	var said *wire.Error
	if s.kind == wireNIC || errors.Is(err, wire.ErrOptions) || errors.As(err, &said) {
		return "" // it says all there is to say
	}
	if unknown := (*net.DNSError)(nil); errors.As(err, &unknown) {
		return "check the spelling of the host and the name service, or give the address in numbers"
	}
	return "check that the address is one of this host's and that no other program uses the port"
}

// dress gives a wire, which it owns, the faults and the speed of the address.
func (s *settings) dress(w wire.Port) (wire.Port, error) {
	shape := wire.ShaperOptions{Path: speed.Path{Rate: int64(s.General.Rate)}, Delay: s.General.Delay}
	dressed, err := dress(w, s.General.Faults, shape, s.pipeline())
	if err != nil {
		return nil, &vfio.Error{Op: "open", Device: s.name, Err: err}
	}
	return dressed, nil
}

// dress gives a wire, which it owns, faults, and a speed whose bursts and set-up are those of the devices on it.
func dress(w wire.Port, faults wire.FaultOptions, shape wire.ShaperOptions, p engine.Pipeline) (wire.Port, error) {
	if faults.Loss+faults.Duplicate+faults.Reorder+faults.Corrupt > 0 {
		faulty, err := wire.NewFault(w, faults)
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		w = faulty
	}
	shape.Burst, shape.Setup = p.Burst, p.Setup
	if shape.Rate == 0 && shape.Delay == 0 && shape.Setup == 0 {
		return w, nil
	}
	shaped, err := wire.NewShaper(w, shape)
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return shaped, nil
}
