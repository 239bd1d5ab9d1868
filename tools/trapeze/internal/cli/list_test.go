package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

// TestListedAddressesOpen: each form of address that list shows is one that opens.
func TestListedAddressesOpen(t *testing.T) {
	var r struct {
		Emulated []struct{ Address, Description string }
	}
	decode(t, run(t, "list", "--json", "--root", recordedHost(t)), &r)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("5a", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	wires := map[string]bool{}
	for _, e := range r.Emulated {
		_, wire, _ := strings.Cut(e.Address, "wire=")
		kind, _, _ := strings.Cut(wire, ":")
		wires[kind] = true
		address := strings.NewReplacer("peer=HOST:PORT", "peer=127.0.0.1:9", "HOST:PORT", "127.0.0.1:0", "NAME", "listed", "FILE", key, "PATH", filepath.Join(t.TempDir(), "socket"),
			"…", "mem:listed").Replace(e.Address)
		if scheme, _, _ := strings.Cut(address, ":"); scheme == "eth" || scheme == "agent" {
			// There is no such NIC here, but it is one that is looked for.
			address = strings.NewReplacer("FUNCTION", "ffff:ff:1f.7", "INTERFACE", "no-such-one").Replace(address)
			if o := run(t, "info", "--device", address); o.code != shell.ExitDevice || strings.Contains(o.stderr, "options of") {
				t.Errorf("%s: code %d, %s", e.Address, o.code, o.stderr)
			}
			wires[scheme+":"] = true
			continue
		}
		var info struct{ Backend string }
		decode(t, run(t, "info", "--json", "--device", address), &info)
		if info.Backend != "emulator" || e.Description == "" {
			t.Errorf("%s: %+v, %q", e.Address, info, e.Description)
		}
	}
	for _, kind := range []string{"", "mem", "udp", "shm", "memif", "host", "eth:", "agent:"} {
		if !wires[kind] {
			t.Errorf("no address has a wire of kind %q: %v", kind, r.Emulated)
		}
	}
}
