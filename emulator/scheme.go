package emulator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// Scheme starts the addresses of emulated devices. EthernetScheme is the short form of those whose
// wire is a NIC, and agentScheme of those whose NIC the host's agent has.
const (
	Scheme         = "emu"
	EthernetScheme = "eth"
	agentScheme    = "agent"
)

func ours(scheme string) bool {
	return scheme == Scheme || scheme == EthernetScheme || scheme == agentScheme
}

func init() {
	vfio.RegisterWhole(Scheme, open)
	vfio.RegisterWhole(EthernetScheme, open)
	vfio.RegisterWhole(agentScheme, open)
}

// open opens the device at an address such as "emu:",
// "emu:?wire=mem:one&loss=0.2", "emu:?wire=memif:/run/x.sock&role=client",
// "emu:?wire=shm:/run/x.sock", "emu:?wire=udp://127.0.0.1:9001&peer=127.0.0.1:9000" or
// "emu:?wire=pci:0000:03:00.0", for which "eth:pci:0000:03:00.0" is short.
func open(ctx context.Context, a vfio.Address) (vfio.Device, error) { return openWith(ctx, a, nil) }

// OpenFiltered opens the emulated device at an address, as vfio.Open does, and has change say what
// crosses its wire. Errors are those of vfio.Open.
func OpenFiltered(ctx context.Context, address string, change wire.FilterFunc) (vfio.Device, error) {
	a, err := vfio.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	if !ours(a.Scheme) {
		return nil, &vfio.Error{Op: "open", Device: address, Err: fmt.Errorf("%w: the wire of other devices cannot be filtered", vfio.ErrNotSupported),
			Hint: "do it at the other end of the wire, if that is an emu: device"}
	}
	return openWith(ctx, a, func(w wire.Port) wire.Port { return wire.NewFilter(w, change) })
}

func openWith(ctx context.Context, a vfio.Address, around func(wire.Port) wire.Port) (vfio.Device, error) {
	s, err := parseSettings(a)
	if err != nil {
		return nil, badAddress(a, err)
	}
	s.around = around
	d, err := s.open(ctx)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// CheckAddress says whether an address of an emulated device makes sense, and opens
// nothing. Errors are those of opening it and wrap vfio.ErrBadAddress.
func CheckAddress(a vfio.Address) error {
	if _, err := parseSettings(a); err != nil {
		return badAddress(a, err)
	}
	return nil
}

func badAddress(a vfio.Address, err error) error {
	e := &vfio.Error{Op: "open", Device: a.String(), Err: fmt.Errorf("%w: %w", vfio.ErrBadAddress, err)}
	if unknown, ok := errors.AsType[*unknownOption](err); ok {
		e.Hint = unknown.hint(a.Scheme)
	}
	return e
}

// settings are those of an address.
type settings struct {
	device Options
	kind   wireKind
	// where is the name of a memory wire, or the HOST:PORT of a UDP one. Of a memif
	// or of a wire in shared memory it is the socket.
	where   string
	peers   []string
	keyFile string
	key     *wire.Key // of keyFile
	role    string
	memif   wire.MemifOptions
	shared  wire.SHMOptions
	nic     wire.NICOptions
	agent   wire.AgentOptions
	mtu     int
	vis     uint32
	faults  wire.FaultOptions
	shape   wire.ShaperOptions
	around  func(wire.Port) wire.Port // what surrounds the wire, nil for nothing
}

type wireKind int

const (
	wireLoop wireKind = iota
	wireMemory
	wireUDP
	wireMemif
	wireShared
	wireHost
	wireAgent
	wireNIC
)

// parseSettings checks all of an address before anything is opened.
func parseSettings(a vfio.Address) (*settings, error) {
	s := &settings{}
	s.device.Name = a.String()
	if a.Scheme != Scheme {
		var err error
		if a, err = expand(a); err != nil {
			return nil, err
		}
	}
	if a.Path != "" {
		return nil, fmt.Errorf("%q stands between %s: and the question mark, where nothing should", a.Path, Scheme)
	}
	var given []*setting
	for _, name := range slices.Sorted(maps.Keys(a.Options)) {
		i := slices.IndexFunc(settingTable, func(o setting) bool { return o.name == name })
		if i < 0 {
			return nil, &unknownOption{name, a.Options.Get(name), a.Options.Get("wire")}
		}
		given = append(given, &settingTable[i])
		if err := settingTable[i].parse(s, a.Options.Get(name)); err != nil {
			return nil, fmt.Errorf("option %s=%s: %w", name, a.Options.Get(name), err)
		}
	}
	for _, o := range given {
		if err := o.checkWire(s.kind); err != nil {
			return nil, err
		}
	}
	if s.vis != 0 {
		s.limits().Endpoints = s.vis + 1 // endpoint 0 is reserved
	}
	s.device.Pinned = a.Options.Has("core")
	if !a.Options.Has("engine") && (s.kind == wireUDP || s.kind == wireNIC || s.kind == wireMemif && !s.memif.Polling) {
		s.device.Thread = true
	}
	if err := s.completeWire(); err != nil {
		return nil, err
	}
	return s, s.checkShape()
}

// expand returns what an address of EthernetScheme or agentScheme is short for: what stands before
// the question mark is the wire, and an interface of Linux may go without "afxdp:".
func expand(a vfio.Address) (vfio.Address, error) {
	wire, err := url.PathUnescape(a.Path) // options of the NIC's own address are in it
	if a.Scheme == agentScheme {
		wire = agentScheme + ":" + wire
	} else if wire != "" && !strings.Contains(wire, ":") {
		wire = "afxdp:" + wire
	}
	var s settings
	switch {
	case err != nil:
		return a, err
	case a.Options.Has("wire"):
		return a, fmt.Errorf("option wire: it stands between %s: and the question mark", a.Scheme)
	case a.Scheme == agentScheme:
	case parseWire(&s, wire) != nil || s.kind != wireNIC:
		return a, fmt.Errorf("%q is no NIC: it is as in eth:pci:0000:03:00.0, eth:eth0 or eth:vhost-user:PATH", a.Path)
	}
	options := url.Values{"wire": {wire}}
	maps.Copy(options, a.Options)
	a.Options, a.Path = options, ""
	return a, nil
}

// completeWire checks what only can be checked once all options are known, and reads
// the key of a UDP wire.
func (s *settings) completeWire() (err error) {
	switch s.kind {
	case wireUDP:
		if s.keyFile == "" {
			return nil
		}
		if s.key, err = wire.ReadKey(s.keyFile); err != nil {
			return fmt.Errorf("option key: %w", err)
		}
	case wireMemif:
		switch s.role {
		case "server":
			s.memif.Role = wire.MemifServer
		case "client":
			s.memif.Role = wire.MemifClient
		default:
			return errors.New("option role: a memif needs role=server or role=client")
		}
		s.memif.Socket, s.memif.MTU = s.where, s.mtu
		return s.memif.Check()
	case wireShared:
		if s.role != "" {
			if s.shared.Role, err = wire.ParseSHMRole(s.role); err != nil {
				return errors.New("option role: of a shm wire it is listen, connect or auto")
			}
		}
		s.shared.Path, s.shared.MTU = s.where, s.mtu
		return s.shared.Check()
	case wireHost:
		return s.host().Check()
	case wireAgent:
		s.agent.NIC, s.agent.MAC, s.agent.MTU, s.agent.VIs = s.where, s.device.MAC, s.mtu, s.vis
		return s.agent.Check()
	case wireNIC:
		s.nic.MTU, s.nic.MAC = s.mtu, s.device.MAC
		return s.nic.Check()
	}
	return nil
}

// open makes the wire and the device.
func (s *settings) open(ctx context.Context) (*Device, error) {
	if s.kind == wireMemory {
		return namedWires.open(s)
	}
	w, err := s.wire(ctx)
	if err != nil {
		return nil, &vfio.Error{Op: "open", Device: s.device.Name, Err: err, Hint: s.wireHint(err)}
	}
	if err := s.checkBurst(w.MTU()); err != nil {
		return nil, &vfio.Error{Op: "open", Device: s.device.Name, Err: errors.Join(fmt.Errorf("%w: %w", vfio.ErrBadAddress, err), w.Close())}
	}
	return s.plug(w)
}

func (s *settings) host() wire.HostOptions { return wire.HostOptions{Name: s.where, MTU: s.mtu} }

func (s *settings) wire(ctx context.Context) (wire.Port, error) {
	switch s.kind {
	case wireMemif:
		return wire.NewMemif(s.memif)
	case wireShared:
		return wire.NewSHM(ctx, s.shared)
	case wireHost:
		return wire.NewHost(s.host())
	case wireAgent:
		p, grant, err := wire.NewAgent(ctx, s.agent)
		if err != nil {
			return nil, err
		}
		s.device.MAC, s.device.Memory = grant.MAC, grant.Memory
		s.limits().Endpoints = min(s.limits().Endpoints, grant.VIs+1) // endpoint 0 is reserved
		return p, nil
	case wireUDP:
		return wire.NewUDP(ctx, wire.UDPOptions{Local: s.where, Peers: s.peers, MTU: s.mtu, Key: s.key})
	case wireNIC:
		p, err := wire.NewNIC(ctx, s.nic)
		if err != nil {
			return nil, err
		}
		s.device.MAC = p.MAC()
		return p, nil
	}
	return wire.NewLoopback(wire.MemoryOptions{MTU: s.mtu})
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

// plug makes a device at the end of a wire, which it owns.
func (s *settings) plug(w wire.Port) (*Device, error) {
	if s.around != nil {
		w = s.around(w)
	}
	shaped, err := s.dress(w)
	if err != nil {
		return nil, err
	}
	o := s.device
	o.Wire = shaped
	return New(o)
}

// dress gives a wire, which it owns, its faults and its speed.
func (s *settings) dress(w wire.Port) (wire.Port, error) {
	if s.faults.Loss+s.faults.Duplicate+s.faults.Reorder+s.faults.Corrupt > 0 {
		f, err := wire.NewFault(w, s.faults)
		if err != nil {
			return nil, &vfio.Error{Op: "open", Device: s.device.Name, Err: errors.Join(err, w.Close())}
		}
		w = f
	}
	shaped, err := s.shaped(w)
	if err != nil {
		return nil, &vfio.Error{Op: "open", Device: s.device.Name, Err: errors.Join(err, w.Close())}
	}
	return shaped, nil
}

// CheckWire says whether an address makes sense to OpenWire, and opens nothing. Errors are those of
// OpenWire and wrap vfio.ErrBadAddress.
func CheckWire(address string) error {
	_, err := sharedSettings(address)
	return err
}

// sharedSettings are those of an address with a wire that can be shared.
func sharedSettings(address string) (*settings, error) {
	a, err := vfio.ParseAddress(address)
	if err != nil {
		return nil, err
	}
	s, err := parseSettings(a)
	if err == nil && (!ours(a.Scheme) || s.kind == wireMemory || s.kind == wireAgent) {
		err = errors.New("it has no wire that can be shared: use eth:…, or emu: with a wire to elsewhere")
	}
	if err != nil {
		return nil, badAddress(a, err)
	}
	return s, nil
}

// OpenWire opens the wire of an address of an emulated device and no device: for a program that
// switches frames between it and others, so that a NIC receives all frames. A wire in memory has no
// other end then, and is refused. It returns nil without an error for a loop. Errors are those of
// vfio.Open.
func OpenWire(ctx context.Context, address string) (wire.Port, error) {
	s, err := sharedSettings(address)
	if err != nil {
		return nil, err
	}
	if s.kind == wireLoop {
		return nil, nil
	}
	s.nic.Promiscuous = true
	w, err := s.wire(ctx)
	if err == nil {
		return s.dress(w)
	}
	return nil, &vfio.Error{Op: "open", Device: address, Err: err, Hint: s.wireHint(err)}
}
