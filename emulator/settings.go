package emulator

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/wire"
)

// settings are those of an address. docs/addresses.md describes the options, package option their tags.
type settings struct {
	name string // the address, or that of a device of a fleet
	wireAddress
	General generalSettings
	// Each kind of wire has options of its own.
	burst burstSettings
	udp   udpSettings
	memif wire.MemifOptions
	shm   shmSettings
	nic   wire.NICOptions
	agent agentSettings

	pinned bool
	memory uint64                    // bytes that the agent lets the device map; 0: no limit
	around func(wire.Port) wire.Port // what surrounds the wire, nil for nothing
}

// generalSettings are those of all addresses. A page of doorbells for each endpoint and completion queue makes a BAR of
// 128 MiB at most, which has its place below 4 GiB as 32-bit BARs must (see layBARs); regions are as many as handles can
// tell apart. Cores are those of a unix.CPUSet.
type generalSettings struct {
	Wire      string        `option:"wire"` // see wireAddress
	Thread    bool          `option:"engine" oneof:"inline,thread"`
	Core      int           `option:"core" range:"0..1023"`
	Doorbells DoorbellMode  `option:"doorbells" oneof:",mapped,trapped"`
	MTU       int           `option:"mtu" range:"160..65344"`
	MAC       datasheet.MAC `option:"mac"`
	Faults    wire.FaultOptions
	Rate      speed.Rate    `option:"rate"`
	Delay     time.Duration `option:"delay" range:"0s..10ms"`
	Setup     time.Duration `option:"setup" range:"0s..100us"`
	Bus       speed.Rate    `option:"bus"`
	Half      bool          `option:"duplex" oneof:"full,half"`
	Buffers   int           `option:"buffers" range:"1..64"`
	SRAM      uint32        `option:"sram" range:"262144..1073741824"`
	VIs       uint32        `option:"vis" range:"1..16383"`
	CQs       uint32        `option:"cqs" range:"1..16384"`
	Regions   uint32        `option:"regions" range:"1..1048576"`
}

type burstSettings struct {
	Burst int `option:"burst" range:"64..65536"`
}

type udpSettings struct {
	Peers   peers  `option:"peer"`
	KeyFile string `option:"key" range:"1.." allowed:"a file with 64 hexadecimal digits"`
	key     *wire.Key
}

type shmSettings struct {
	Role  wire.SHMRole `option:"role" oneof:"auto,listen,connect"`
	Share int          `option:"share" oneof:"off,on,write"`
}

type agentSettings struct {
	Socket string       `option:"socket" range:"1..107" allowed:"the path of the agent's socket"`
	Memory option.Bytes `option:"memory" range:"4K.."`
}

// options are the settings that addresses with a kind of wire have.
func (s *settings) options(kind wireKind) []any {
	switch kind {
	case wireLoop, wireMemory:
		return []any{&s.General, &s.burst}
	case wireShared:
		return []any{&s.General, &s.burst, &s.shm}
	case wireMemif:
		return []any{&s.General, &s.memif}
	case wireUDP:
		return []any{&s.General, &s.udp}
	case wireNIC:
		return []any{&s.General, &s.nic}
	case wireAgent:
		return []any{&s.General, &s.agent}
	}
	return []any{&s.General}
}

// OptionNames lists the options that addresses of emulated devices may have.
func OptionNames() (names []string) {
	var s settings
	for kind := range wireKinds {
		names = append(names, option.Names("option", s.options(kind)...)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// peers are HOST:PORTs.
type peers []string

// Set reads them with commas between them.
func (p *peers) Set(text string) error {
	*p = strings.Split(text, ",")
	for _, peer := range *p {
		if err := checkHostPort(peer); err != nil {
			return err
		}
		if strings.HasSuffix(peer, ":0") {
			return errors.New("port of a peer is not in 1..65535")
		}
	}
	return nil
}

func checkHostPort(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return fmt.Errorf("%w: it is HOST:PORT", err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("port %q is not in 0..65535", port)
	}
	return nil
}

// limits are those of the engine.
func (s *settings) limits() engine.Limits {
	l, o := engine.DefaultLimits(), s.General
	if o.VIs != 0 {
		l.Endpoints = o.VIs + 1 // endpoint 0 is reserved
	}
	if o.CQs != 0 {
		l.CQs = o.CQs
	}
	if o.Regions != 0 {
		l.Regions = o.Regions
	}
	return l
}

// device are the choices of New but for the wire.
func (s *settings) device() Options {
	o := s.General
	return Options{Name: s.name, MAC: o.MAC, Limits: s.limits(), Pipeline: s.pipeline(), Doorbells: o.Doorbells,
		Thread: o.Thread, Pinned: s.pinned, Core: o.Core, SRAM: o.SRAM, Memory: s.memory}
}

func (s *settings) pipeline() engine.Pipeline {
	o := s.General
	return engine.Pipeline{Burst: s.burst.Burst, Bus: int64(o.Bus), HalfDuplex: o.Half, Setup: o.Setup, Buffers: o.Buffers}
}

// checkShape refuses a speed and a burst that the rest of the address does not allow.
func (s *settings) checkShape() error {
	o := s.General
	if s.shm.Share != 0 {
		for name, given := range map[string]bool{"rate": o.Rate != 0, "delay": o.Delay != 0, "bus": o.Bus != 0, "setup": o.Setup != 0} {
			if given {
				return fmt.Errorf("option %s: with share=on payloads do not cross the wire, leave one of the two out", name)
			}
		}
	}
	switch {
	case o.MTU != 0:
		return s.checkBurst(o.MTU)
	case s.kind == wireLoop:
		return s.checkBurst(wire.DefaultMemoryMTU)
	}
	return nil // the wire knows
}

// checkBurst refuses bursts that frames of at most mtu bytes cannot have.
func (s *settings) checkBurst(mtu int) error {
	burst, payload, faulty := s.burst.Burst, mtu-datasheet.HeaderSize, s.General.Faults
	faulty.Seed = 0
	switch {
	case burst > payload:
		return fmt.Errorf("option burst=%d: a frame of this wire has at most %d bytes of payload", burst, payload)
	case burst != 0 && burst < payload && faulty != (wire.FaultOptions{}):
		return fmt.Errorf("option burst=%d: with loss, duplicate, reorder or corrupt frames have a checksum, and go whole: "+
			"leave one of the two out, or give a burst of %d", burst, payload)
	}
	return nil
}
