//go:build nffgo

package firewall

import (
	"fmt"
	"sync/atomic"

	"github.com/intel-go/nff-go/flow"
	"github.com/intel-go/nff-go/packet"
)

// ACL is an access list of nff-go's.
type ACL struct {
	rules           *packet.L3Rules
	passed, dropped atomic.Uint64
}

// LoadACL reads rules, one in a line: source, destination, protocol, source port,
// destination port, and Accept or Reject. The first that fits counts.
func LoadACL(file string) (_ *ACL, err error) {
	defer func() { // nff-go takes a bad address for a good one, and ends
		if r := recover(); r != nil {
			err = fmt.Errorf("rules %q: bad address: %v", file, r)
		}
	}()
	rules, err := packet.GetL3ACLFromTextTable(file)
	if err != nil {
		return nil, fmt.Errorf("rules %q: %w", file, err)
	}
	return &ACL{rules: rules}, nil
}

// Counts returns how many frames the list has let pass, and dropped.
func (a *ACL) Counts() (passed, dropped uint64) { return a.passed.Load(), a.dropped.Load() }

// Filter is a function for flow.SetVectorHandlerDrop. ARP passes, and IP that the rules
// accept, and nothing else.
func (a *ACL) Filter(packets []*packet.Packet, mask, keep *[32]bool, _ flow.UserContext) {
	passed, dropped := uint64(0), uint64(0)
	for i, p := range packets {
		if !mask[i] {
			continue
		}
		if keep[i] = a.allows(p); keep[i] {
			passed++
		} else {
			dropped++
		}
	}
	a.passed.Add(passed)
	a.dropped.Add(dropped)
}

// Lengths in bytes of the headers of Ethernet, IPv4 without options and IPv6, and of the
// ports of TCP and UDP.
const ethernetHeader, ipv4Header, ipv6Header, ports = 14, 20, 40, 4

// allows looks whether all is there that the rules may look at, as they do not.
func (a *ACL) allows(p *packet.Packet) bool {
	b := p.GetRawPacketBytes()
	if len(b) < ethernetHeader {
		return false
	}
	need := 0
	switch uint16(b[12])<<8 | uint16(b[13]) {
	case 0x0806: // ARP
		return true
	case 0x0800:
		if need = ethernetHeader + ipv4Header + ports; len(b) >= need {
			need = ethernetHeader + 4*int(b[ethernetHeader]&15) + ports
		}
	case 0x86dd:
		need = ethernetHeader + ipv6Header + ports
	default:
		return false
	}
	if len(b) < need {
		return false
	}
	p.ParseL3()
	return p.L3ACLPermit(a.rules)
}
