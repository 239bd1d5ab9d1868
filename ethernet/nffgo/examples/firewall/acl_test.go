//go:build nffgo

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/intel-go/nff-go/flow"
	"github.com/intel-go/nff-go/packet"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet/nffgo/internal/firewall"
)

func TestLoadACLRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, rules := range map[string]string{
		"none":    "",
		"fields":  "ANY ANY UDP\n",
		"address": "192.0.2.0/40 ANY UDP ANY ANY Accept\n",
		"port":    "ANY ANY UDP ANY 70000 Accept\n",
		"verdict": "ANY ANY UDP ANY ANY Perhaps\n",
	} {
		file := filepath.Join(dir, name)
		if rules != "" {
			must.OK(t, os.WriteFile(file, []byte(rules), 0o600))
		}
		_, err := firewall.LoadACL(file)
		should.Hold(t, err != nil, "%s: rules %q were taken", name, rules)
	}
}

// TestFilter: a frame that ends before what the rules look at is dropped, whatever was in
// its buffer before.
func TestFilter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules")
	must.OK(t, os.WriteFile(file, []byte(aclRules), 0o600))
	acl := must.Get(firewall.LoadACL(file))(t)
	must.OK(t, firewall.Init(1))
	must.OK(t, flow.SystemInitPortsAndMemory())
	frame := func(number, length int, change func(b []byte)) []byte {
		b := make([]byte, 64)
		fillFrame(b, number)
		if change != nil {
			change(b)
		}
		return b[:length]
	}
	etherType := func(high, low byte) func(b []byte) { return func(b []byte) { b[12], b[13] = high, low } }
	tests := []struct {
		name  string
		frame []byte
		keep  bool
	}{
		{"accepted", frame(0, 64, nil), true},
		{"rejected", frame(3, 64, nil), false},
		{"as short as can be", frame(0, 38, nil), true},
		{"without ports", frame(0, 37, nil), false},
		{"without ports behind options", frame(0, 64, func(b []byte) { b[14] = 0x4f }), false},
		{"from elsewhere", frame(0, 64, func(b []byte) { b[26] = 10 }), false},
		{"ARP", frame(0, 42, etherType(8, 6)), true},
		{"IPv6 without rules", frame(0, 64, etherType(0x86, 0xdd)), false},
		{"half an IPv6 header", frame(0, 40, etherType(0x86, 0xdd)), false},
		{"neither", frame(0, 64, etherType(0x88, 0xb5)), false},
		{"half a header", frame(0, 13, nil), false},
	}
	var packets [32]*packet.Packet
	var mask, keep [32]bool
	kept := uint64(0)
	for i, tt := range tests {
		p := must.Get(packet.NewPacket())(t)
		must.Hold(t, packet.GeneratePacketFromByte(p, tt.frame), "%s: no packet", tt.name)
		packets[i], mask[i] = p, true
		if tt.keep {
			kept++
		}
	}
	acl.Filter(packets[:], &mask, &keep, nil)
	for i, tt := range tests {
		should.Be(t, keep[i], tt.keep, "%s", tt.name)
	}
	passed, dropped := acl.Counts()
	should.Hold(t, passed == kept && passed+dropped == uint64(len(tests)), "%d passed, %d were dropped", passed, dropped)
}
