package telemetry_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestDPDKClient: DPDK's own client finds the socket by its rules and gets answers. It is part
// of Debian's package dpdk-dev.
func TestDPDKClient(t *testing.T) {
	client, err := exec.LookPath("dpdk-telemetry.py")
	if err != nil {
		t.Skip("dpdk-telemetry.py is missing: install dpdk-dev")
	}
	serve(t, source("emu:a"))
	c := exec.CommandContext(t.Context(), client, "-f", "test")
	c.WaitDelay = 10 * time.Second
	asked := []string{"/", "/info", "/ethdev/list", "/ethdev/info,0", "/ethdev/stats,0", "/ethdev/xstats,0", "/ethdev/link_status,0", "/trapeze/sum,4", "/none"}
	c.Stdin = strings.NewReader(strings.Join(asked, "\n") + "\nquit\n")
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != len(asked) {
		t.Fatalf("%d answers to %d commands:\n%s", len(lines), len(asked), out)
	}
	for i, line := range lines {
		var answer map[string]any
		command, _, _ := strings.Cut(asked[i], ",")
		if err := json.Unmarshal([]byte(line), &answer); err != nil || (answer[command] == nil) != (command == "/none") {
			t.Errorf("%s: %s, %v", asked[i], line, err)
		}
	}
}
