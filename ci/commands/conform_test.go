package commands_test

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestConform has the command put pairs of NICs through the suite, over each way that a user has
// without hardware. Other tests put these ways through the suites: the command takes sections of them,
// different ones over each way, and all of them over each in the soak.
func TestConform(t *testing.T) {
	needsProgram(t)
	for _, tt := range []struct {
		name     string
		start    func(t *testing.T) (device, peer string)
		sections []string
	}{
		{"in this process", func(*testing.T) (device, peer string) { return "", "" }, []string{"memory", "states", "layout", "limits", "faults", "send-receive", "errors", "channels", "rings"}},
		{"vfio-user", func(t *testing.T) (device, peer string) {
			devices := served(t, 2)
			return devices[0], devices[1]
		}, []string{"connection", "cq"}},
		{"shm", func(t *testing.T) (device, peer string) {
			// The engine has a thread: a NIC of this wire that nobody polls is given up.
			address := "emu:?engine=thread&wire=shm:" + filepath.Join(t.TempDir(), "w")
			return address, address
		}, []string{"connection", "rdma"}},
		{"UDP with faults", func(t *testing.T) (device, peer string) {
			const faults = "&loss=0.05&duplicate=0.05&reorder=0.05&corrupt=0.05&seed=3"
			receiver, sender := udpPair(t, faults)
			// Either side begins, so that both must know where the other one is.
			a, err := vfio.ParseAddress(sender)
			if err != nil {
				t.Fatal(err)
			}
			return receiver + "&peer=" + strings.TrimPrefix(a.Options.Get("wire"), "udp://"), sender
		}, []string{"connection", "reliability"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			device, peer := tt.start(t)
			args := []string{"conform", "--json"}
			if device != "" {
				args = append(args, "--device", device, "--peer", peer)
			}
			least := 50
			if !soak.Wanted() {
				least = 8
				for _, s := range tt.sections {
					args = append(args, "--section", s)
				}
			}
			p := start(t, args...)
			code := p.code(t)
			var r struct {
				Passed, Failed, Skipped int
				Checks                  []struct {
					Section, Name, Result string
					Messages              []string
				}
			}
			if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
				t.Fatalf("exit code %d, %v\n%s%s", code, err, &p.stdout, &p.stderr)
			}
			for _, c := range r.Checks {
				// Faults are made in the engine of an emulated peer, and this one is in another process.
				unreachable := tt.name == "vfio-user" && c.Section == "faults" && c.Result == "skipped"
				if c.Result != "passed" && !unreachable {
					t.Errorf("%s/%s: %s %s", c.Section, c.Name, c.Result, c.Messages)
				}
			}
			if code != 0 || r.Failed != 0 || r.Passed+r.Skipped != len(r.Checks) || r.Passed < least {
				t.Errorf("exit code %d, %d passed, %d failed, %d skipped\n%s", code, r.Passed, r.Failed, r.Skipped, &p.stderr)
			}
		})
	}
}
