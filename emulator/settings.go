package emulator

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/wire/memif"
)

// setting is an option of an address.
type setting struct {
	name  string
	parse func(s *settings, value string) error
}

// settingTable lists the options of an address, as they are shown.
var settingTable = []setting{
	{"wire", parseWire},
	{"peer", parsePeers},
	{"key", parseKey},
	{"engine", parseEngine},
	{"core", parseCore},
	{"doorbells", parseDoorbells},
	{"mtu", parseMTU},
	{"mac", parseMAC},
	{"loss", chance(func(s *settings) *float64 { return &s.faults.Loss })},
	{"duplicate", chance(func(s *settings) *float64 { return &s.faults.Duplicate })},
	{"reorder", chance(func(s *settings) *float64 { return &s.faults.Reorder })},
	{"corrupt", chance(func(s *settings) *float64 { return &s.faults.Corrupt })},
	{"seed", parseSeed},
	{"role", parseAnyRole},
	{"id", parseID},
	{"queues", number(func(s *settings) *int { return &s.memif.Queues }, 1, memif.MaxQueues)},
	{"ring", number(func(s *settings) *int { return &s.memif.Ring }, 2, memif.MaxRing)},
	{"buffer", number(func(s *settings) *int { return &s.memif.Buffer }, 64, 1<<16)},
	{"mode", parseMode},
	{"secret", parseSecret},
	{"share", parseShare},
	{"vis", parseVIs},
	{"cqs", parseCQs},
	{"regions", parseRegions},
}

func settingOf(name string) *setting {
	for i := range settingTable {
		if settingTable[i].name == name {
			return &settingTable[i]
		}
	}
	return nil
}

func settingNames() []string {
	var names []string
	for _, s := range settingTable {
		names = append(names, s.name)
	}
	return names
}

func parseWire(s *settings, v string) error {
	if v == "loop" {
		s.kind = wireLoop
		return nil
	}
	if name, ok := strings.CutPrefix(v, "mem:"); ok && name != "" {
		s.kind, s.where = wireMemory, name
		return nil
	}
	if where, ok := strings.CutPrefix(v, "udp://"); ok {
		s.kind, s.where = wireUDP, where
		return checkHostPort(where)
	}
	if socket, ok := strings.CutPrefix(v, "memif:"); ok && socket != "" {
		s.kind, s.where = wireMemif, socket
		return nil
	}
	if socket, ok := strings.CutPrefix(v, "shm:"); ok && socket != "" {
		s.kind, s.where = wireShared, socket
		return nil
	}
	return errors.New("it is loop, mem:NAME, udp://HOST:PORT, memif:PATH, memif:@NAME, shm:PATH or shm:@NAME")
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

func parseEngine(s *settings, v string) error {
	switch v {
	case "inline":
		s.device.Run = RunInline
	case "thread":
		s.device.Run = RunThread
	default:
		return errors.New("it is inline or thread")
	}
	return nil
}

func parseDoorbells(s *settings, v string) error {
	switch v {
	case "mapped":
		s.device.Doorbells = DoorbellsMapped
	case "trapped":
		s.device.Doorbells = DoorbellsTrapped
	default:
		return errors.New("it is mapped or trapped")
	}
	return nil
}

func parseMTU(s *settings, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil || n < descriptors.MinMTU || n > descriptors.MaxMTU {
		return fmt.Errorf("it is a number of bytes in %d..%d", descriptors.MinMTU, descriptors.MaxMTU)
	}
	s.mtu = n
	return nil
}

func parseMAC(s *settings, v string) error {
	hw, err := net.ParseMAC(v)
	if err != nil || len(hw) != len(descriptors.MAC{}) {
		return errors.New("it is six bytes such as 02:00:00:00:00:01")
	}
	mac := descriptors.MAC(hw)
	if mac.IsMulticast() || mac == (descriptors.MAC{}) {
		return errors.New("it is the address of one station: not zero, and not a group's")
	}
	s.device.MAC = mac
	return nil
}

// chance parses a probability.
func chance(at func(s *settings) *float64) func(s *settings, v string) error {
	return func(s *settings, v string) error {
		p, err := strconv.ParseFloat(v, 64)
		if err != nil || !(p >= 0 && p <= 1) {
			return errors.New("it is a probability in 0..1")
		}
		*at(s) = p
		s.faulty = s.faulty || p > 0
		return nil
	}
}

func parseSeed(s *settings, v string) error {
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return errors.New("it is a number in 0..18446744073709551615")
	}
	s.faults.Seed = n
	return nil
}
