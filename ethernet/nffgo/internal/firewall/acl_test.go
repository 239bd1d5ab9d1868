//go:build nffgo

package firewall_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/intel-go/nff-go/flow"
	"github.com/intel-go/nff-go/packet"

	"github.com/trapeze-nic/trapeze/ethernet/nffgo/internal/firewall"
	"github.com/trapeze-nic/trapeze/ethernet/nffgo/internal/numbered"
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
			if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := firewall.LoadACL(file); err == nil {
			t.Errorf("%s: rules %q were taken", name, rules)
		}
	}
}

// TestFilter: a frame that ends before what the rules look at is dropped, whatever was in
// its buffer before.
func TestFilter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rules")
	if err := os.WriteFile(file, []byte(numbered.Rules), 0o600); err != nil {
		t.Fatal(err)
	}
	acl, err := firewall.LoadACL(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := firewall.Init(1); err != nil {
		t.Fatal(err)
	}
	if err := flow.SystemInitPortsAndMemory(); err != nil {
		t.Fatal(err)
	}
	frame := func(number, length int, change func(b []byte)) []byte {
		b := make([]byte, 64)
		numbered.Fill(b, number)
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
		p, err := packet.NewPacket()
		if err != nil {
			t.Fatal(err)
		}
		if !packet.GeneratePacketFromByte(p, tt.frame) {
			t.Fatalf("%s: no packet", tt.name)
		}
		packets[i], mask[i] = p, true
		if tt.keep {
			kept++
		}
	}
	acl.Filter(packets[:], &mask, &keep, nil)
	for i, tt := range tests {
		if keep[i] != tt.keep {
			t.Errorf("%s: kept: %t", tt.name, keep[i])
		}
	}
	if passed, dropped := acl.Counts(); passed != kept || passed+dropped != uint64(len(tests)) {
		t.Errorf("%d passed, %d were dropped", passed, dropped)
	}
}
