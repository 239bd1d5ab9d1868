package emulator

import (
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/firmware-loader/processor"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/wire"
)

// setting is an option of an address.
type setting struct {
	name  string
	wires []wireKind // the kinds of wire that have it; nil: it is not about the wire
	parse func(s *settings, value string) error
}

// The README describes these options. Most VIs, CQs and regions that an address can
// ask for: a page of doorbells for each endpoint and completion queue makes a BAR of
// 128 MiB, which has its place below 4 GiB as 32-bit BARs must (see layBARs); regions
// are as many as handles can tell apart.
var settingTable = []setting{
	{"wire", nil, parseWire},
	{"peer", []wireKind{wireUDP}, parsePeers},
	{"key", []wireKind{wireUDP}, text(func(s *settings) *string { return &s.keyFile }, math.MaxInt, "it is a file with 64 hexadecimal digits")},
	{"engine", nil, choice(func(s *settings) *bool { return &s.device.Thread }, "inline or thread",
		map[string]bool{"inline": false, "thread": true})},
	{"core", nil, number(func(s *settings) *int { return &s.device.Core }, 0, maxCore)},
	{"doorbells", nil, choice(func(s *settings) *DoorbellMode { return &s.device.Doorbells }, "mapped or trapped",
		map[string]DoorbellMode{"mapped": DoorbellsMapped, "trapped": DoorbellsTrapped})},
	{"mtu", nil, number(func(s *settings) *int { return &s.mtu }, datasheet.MinMTU, datasheet.MaxMTU)},
	{"mac", nil, parseMAC},
	{"loss", nil, chance(func(s *settings) *float64 { return &s.faults.Loss })},
	{"duplicate", nil, chance(func(s *settings) *float64 { return &s.faults.Duplicate })},
	{"reorder", nil, chance(func(s *settings) *float64 { return &s.faults.Reorder })},
	{"corrupt", nil, chance(func(s *settings) *float64 { return &s.faults.Corrupt })},
	{"seed", nil, number(func(s *settings) *uint64 { return &s.faults.Seed }, 0, math.MaxUint64)},
	{"burst", []wireKind{wireLoop, wireMemory, wireShared}, number(func(s *settings) *int { return &s.device.Pipeline.Burst }, speed.MinBurst, speed.MaxBurst)},
	{"rate", nil, rate(func(s *settings) *int64 { return &s.shape.Rate })},
	{"delay", nil, span(func(s *settings) *time.Duration { return &s.shape.Delay }, speed.MaxDelay)},
	{"setup", nil, span(func(s *settings) *time.Duration { return &s.device.Pipeline.Setup }, speed.MaxSetup)},
	{"bus", nil, rate(func(s *settings) *int64 { return &s.device.Pipeline.Bus })},
	{"role", []wireKind{wireMemif, wireShared}, choice(func(s *settings) *string { return &s.role },
		"server or client of a memif, or listen, connect or auto of a shm wire",
		map[string]string{"server": "server", "client": "client", "listen": "listen", "connect": "connect", "auto": "auto"})},
	{"id", []wireKind{wireMemif}, number(func(s *settings) *uint32 { return &s.memif.ID }, 0, math.MaxUint32)},
	{"queues", []wireKind{wireMemif}, number(func(s *settings) *int { return &s.memif.Queues }, 1, wire.MemifMaxQueues)},
	{"ring", []wireKind{wireMemif}, number(func(s *settings) *int { return &s.memif.Ring }, 2, wire.MemifMaxRing)},
	{"buffer", []wireKind{wireMemif}, number(func(s *settings) *int { return &s.memif.Buffer }, 64, 1<<16)},
	{"mode", []wireKind{wireMemif}, choice(func(s *settings) *bool { return &s.memif.Polling }, "poll or interrupt",
		map[string]bool{"poll": true, "interrupt": false})},
	{"secret", []wireKind{wireMemif}, text(func(s *settings) *string { return &s.memif.Secret }, wire.MemifMaxSecret,
		fmt.Sprintf("it has 1 to %d bytes", wire.MemifMaxSecret))},
	{"share", []wireKind{wireShared}, parseShare},
	{"socket", []wireKind{wireAgent}, text(func(s *settings) *string { return &s.agent.Socket }, 107, "it is the path of the agent's socket")},
	{"memory", []wireKind{wireAgent}, parseMemory},
	{"promiscuous", []wireKind{wireNIC}, choice(func(s *settings) *bool { return &s.nic.Promiscuous }, "on or off",
		map[string]bool{"on": true, "off": false})},
	{"sram", nil, number(func(s *settings) *uint32 { return &s.device.SRAM }, processor.MinSRAM, maxSRAM)},
	{"vis", nil, number(func(s *settings) *uint32 { return &s.vis }, 1, 1<<14-1)},
	{"cqs", nil, number(func(s *settings) *uint32 { return &s.limits().CQs }, 1, 1<<14)},
	{"regions", nil, number(func(s *settings) *uint32 { return &s.limits().Regions }, 1, 1<<20)},
}

// OptionNames lists the options that addresses of emulated devices may have.
func OptionNames() (names []string) {
	for _, s := range settingTable {
		names = append(names, s.name)
	}
	return names
}

// unknownOption refuses an option that no address has. wire is the option of that name, "" without it.
type unknownOption struct{ name, value, wire string }

func (e *unknownOption) Error() string { return fmt.Sprintf("unknown option %q", e.name) }

// hint names the option that differs in one or two letters, or else those of the address's wire. Only
// in addresses of Scheme the wire is an option itself.
func (e *unknownOption) hint(scheme string) string {
	var s settings
	_ = parseWire(&s, e.wire) // an address with a bad wire gets the options of a loop
	best, nearest, names := min(3, len(e.name)), "", []string(nil)
	for _, o := range settingTable {
		if o.wires != nil && !slices.Contains(o.wires, s.kind) || o.name == "wire" && scheme != Scheme {
			continue
		}
		names = append(names, o.name)
		if d := differences(e.name, o.name); d < best {
			best, nearest = d, o.name
		}
	}
	if nearest != "" {
		return "did you mean " + nearest + "?"
	}
	_, called := s.kind.form()
	has := fmt.Sprintf("with %s, %s: has the options %s", called, scheme, strings.Join(names, ", "))
	if s.kind == wireNIC {
		start, next := scheme+":", "?"
		if scheme == Scheme {
			start += "?wire="
		}
		if strings.Contains(e.wire, "?") {
			next = "&"
		}
		has += fmt.Sprintf("; options of the NIC's own address follow it as in %s%s", start, option.InAddress(e.wire+next+e.name+"="+e.value))
	}
	return has
}

// differences counts the letters that have to be put in, left out or replaced to make b of a.
func differences(a, b string) int {
	row := make([]int, len(b)+1) // for what has been read of a
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := corner
			if a[i] != b[j] {
				replaced++
			}
			corner, row[j+1] = row[j+1], min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// limits are those of the device, to be changed.
func (s *settings) limits() *engine.Limits {
	if s.device.Limits == (engine.Limits{}) {
		s.device.Limits = engine.DefaultLimits()
	}
	return &s.device.Limits
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

// checkWire refuses an option that wires of the address's kind do not have.
func (o *setting) checkWire(kind wireKind) error {
	if o.wires == nil || slices.Contains(o.wires, kind) {
		return nil
	}
	var called, examples []string
	for _, k := range o.wires {
		form, name := k.form()
		called, examples = append(called, name), append(examples, form)
	}
	return fmt.Errorf("option %s: only %s has it, as in wire=%s", o.name, strings.Join(called, " or "), strings.Join(examples, " or wire="))
}

func parseWire(s *settings, v string) error {
	var forms []string
	for _, f := range wireForms {
		if where, ok := strings.CutPrefix(v, f.prefix); ok && (where == "") == (f.where == "") {
			s.kind, s.where = f.kind, where
			switch f.kind {
			case wireUDP:
				return checkHostPort(where)
			case wireNIC:
				s.nic.Address = v
			}
			return nil
		}
		forms = append(forms, f.prefix+f.where)
	}
	if wire.IsNICAddress(v) { // of a driver that is not ours
		s.kind, s.nic.Address = wireNIC, v
		return nil
	}
	return fmt.Errorf("it is %s; PATH of memif: and shm: may be @NAME", strings.Join(forms, ", "))
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

func parsePeers(s *settings, v string) error {
	for p := range strings.SplitSeq(v, ",") {
		if err := checkHostPort(p); err != nil {
			return err
		}
		if strings.HasSuffix(p, ":0") {
			return errors.New("port of a peer is not in 1..65535")
		}
		s.peers = append(s.peers, p)
	}
	return nil
}

func parseMemory(s *settings, v string) error {
	n, err := option.ParseBytes(v)
	if err == nil && n < datasheet.PageSize {
		err = fmt.Errorf("it is at least %d", datasheet.PageSize)
	}
	s.agent.Memory = uint64(n)
	return err
}

func parseShare(s *settings, v string) error {
	switch v {
	case "on", "write":
		s.shared.Share, s.shared.ShareWrite = true, v == "write"
	case "off":
		s.shared.Share, s.shared.ShareWrite = false, false
	default:
		return errors.New("it is on, off or write")
	}
	return nil
}

func parseMAC(s *settings, v string) error {
	hw, err := net.ParseMAC(v)
	if err != nil || len(hw) != len(datasheet.MAC{}) {
		return errors.New("it is six bytes such as 02:00:00:00:00:01")
	}
	mac := datasheet.MAC(hw)
	if mac.IsMulticast() || mac == (datasheet.MAC{}) {
		return errors.New("it is the address of one station: not zero, and not a group's")
	}
	s.device.MAC = mac
	return nil
}

// choice parses one of some words; says lists them.
func choice[T any](at func(s *settings) *T, says string, values map[string]T) func(s *settings, v string) error {
	return func(s *settings, v string) error {
		x, ok := values[v]
		if !ok {
			return errors.New("it is " + says)
		}
		*at(s) = x
		return nil
	}
}

// text takes 1 to most bytes as they are; says is the error if there are others.
func text(at func(s *settings) *string, most int, says string) func(s *settings, v string) error {
	return func(s *settings, v string) error {
		if v == "" || len(v) > most {
			return errors.New(says)
		}
		*at(s) = v
		return nil
	}
}

// number parses a number in low..high.
func number[T int | uint32 | uint64](at func(s *settings) *T, low, high T) func(s *settings, v string) error {
	return func(s *settings, v string) error {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil || n < uint64(low) || n > uint64(high) {
			return fmt.Errorf("it is a number in %d..%d", low, high)
		}
		*at(s) = T(n)
		return nil
	}
}

// chance parses a probability.
func chance(at func(s *settings) *float64) func(s *settings, v string) error {
	return func(s *settings, v string) error {
		p, err := strconv.ParseFloat(v, 64)
		if err != nil || !(p >= 0 && p <= 1) {
			return errors.New("it is a probability in 0..1")
		}
		*at(s) = p
		return nil
	}
}
