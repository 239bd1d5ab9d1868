package emulator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/option"
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
	hint := ""
	if unknown, ok := errors.AsType[*option.UnknownError](err); ok {
		hint = unknownHint(a, unknown)
	}
	return a.Refuse(err, hint)
}

// unknownHint names the options of the address's wire, and shows how an option becomes one of a NIC's own address.
func unknownHint(a vfio.Address, unknown *option.UnknownError) string {
	short := a.Scheme != Scheme // its wire is no option
	unknown.Known = slices.DeleteFunc(unknown.Known, func(name string) bool { return name == "wire" && short })
	expanded, _ := expand(a) // the address has been parsed so far
	var w wireAddress
	_ = w.Set(expanded.Options.Get("wire"))
	if unknown.Nearest() != "" {
		return unknown.Hint()
	}
	_, called := w.kind.form()
	hint := fmt.Sprintf("with %s, %s: has the options %s", called, a.Scheme, strings.Join(unknown.Known, ", "))
	if w.kind != wireNIC {
		return hint
	}
	start, next := a.Scheme+":", "?"
	if !short {
		start += "?wire="
	}
	if strings.Contains(w.where, "?") {
		next = "&"
	}
	own := w.where + next + unknown.Key + "=" + a.Options.Get(unknown.Key)
	return hint + "; options of the NIC's own address follow it as in " + start + option.InAddress(own)
}

// parseSettings checks all of an address before anything is opened.
func parseSettings(a vfio.Address) (*settings, error) {
	s := &settings{name: a.String()}
	a, err := expand(a)
	if err != nil {
		return nil, err
	}
	if a.Path != "" {
		return nil, fmt.Errorf("%q stands before the options: they begin with a question mark", a.Path)
	}
	if where := a.Options.Get("wire"); a.Options.Has("wire") {
		if err := s.Set(where); err != nil {
			return nil, &option.KeyError{Key: "wire", Value: where, Err: err}
		}
	}
	if err := option.Decode("option", a.Options, s.options(s.kind)...); err != nil {
		return nil, s.otherWire(err)
	}
	s.memif.Socket, s.memif.MTU = s.where, s.General.MTU
	s.nic.Address, s.nic.MTU, s.nic.MAC = s.where, s.General.MTU, s.General.MAC
	s.pinned = a.Options.Has("core")
	if !a.Options.Has("engine") && (s.kind == wireUDP || s.kind == wireNIC || s.kind == wireMemif && !s.memif.Polling) {
		s.General.Thread = true
	}
	if err := s.checkWire(); err != nil {
		return nil, err
	}
	return s, s.checkShape()
}

// otherWire is the error about an unknown option, if it is one of other wires.
func (s *settings) otherWire(err error) error {
	unknown, ok := errors.AsType[*option.UnknownError](err)
	if !ok {
		return err
	}
	var called, examples []string
	for kind := range wireKinds {
		if slices.Contains(option.Names("option", s.options(kind)...), unknown.Key) {
			form, name := kind.form()
			called, examples = append(called, name), append(examples, form)
		}
	}
	if len(called) == 0 {
		return err
	}
	return fmt.Errorf("option %s: only %s has it, as in wire=%s", unknown.Key, strings.Join(called, " or "), strings.Join(examples, " or wire="))
}

// expand returns what an address of EthernetScheme or agentScheme is short for: what stands before
// the question mark is the wire, and an interface of Linux may go without "afxdp:".
func expand(a vfio.Address) (vfio.Address, error) {
	if a.Scheme == Scheme {
		return a, nil
	}
	where, err := url.PathUnescape(a.Path) // options of the NIC's own address are in it
	if a.Scheme == agentScheme {
		where = agentScheme + ":" + where
	} else if where != "" && !strings.Contains(where, ":") {
		where = "afxdp:" + where
	}
	var w wireAddress
	switch {
	case err != nil:
		return a, err
	case a.Options.Has("wire"):
		return a, fmt.Errorf("option wire: it stands between %s: and the question mark", a.Scheme)
	case a.Scheme == agentScheme:
	case w.Set(where) != nil || w.kind != wireNIC:
		return a, fmt.Errorf("%q is no NIC: it is as in eth:pci:0000:03:00.0, eth:eth0 or eth:vhost-user:PATH", a.Path)
	}
	options := url.Values{"wire": {where}}
	maps.Copy(options, a.Options)
	a.Options, a.Path = options, ""
	return a, nil
}

// open makes the wire and the device.
func (s *settings) open(ctx context.Context) (*Device, error) {
	if s.kind == wireMemory {
		return namedWires.open(s)
	}
	w, err := s.wire(ctx)
	if err != nil {
		return nil, &vfio.Error{Op: "open", Device: s.name, Err: err, Hint: s.wireHint(err)}
	}
	if err := s.checkBurst(w.MTU()); err != nil {
		return nil, &vfio.Error{Op: "open", Device: s.name, Err: errors.Join(fmt.Errorf("%w: %w", vfio.ErrBadAddress, err), w.Close())}
	}
	return s.plug(w)
}

// plug makes a device at the end of a wire, which it owns.
func (s *settings) plug(w wire.Port) (*Device, error) {
	if s.around != nil {
		w = s.around(w)
	}
	w, err := s.dress(w)
	if err != nil {
		return nil, err
	}
	o := s.device()
	o.Wire = w
	return New(o)
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
