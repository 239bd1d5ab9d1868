package telemetry_test

import (
	"encoding/json"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// FuzzRequest: whatever a client sends to a process whose NICs have different commands, it gets one object with one key, no longer than the
// greeting says, or is cut off.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{"/", "/info", "/help,/info", "/ethdev/list", "/ethdev/stats,0", "/ethdev/xstats,0,hide_zero=true", "/trapeze/sum,1",
		"/trapeze/sum,0,1", "/trapeze/sum,1,1", "/trapeze/sum,2,1", "/trapeze/twice,2,1,2,3", "/trapeze/twice,1,1,2", "/trapeze/big,0", "/trapeze/big,2",
		"/trapeze/fail,1", "/help,/trapeze/twice", "/trapeze/sum,4294967296", "/trapeze/big", ",", "x", "/\xff,\x00", strings.Repeat("/", 1024), strings.Repeat("/", 1025)} {
		f.Add([]byte(s))
	}
	path := serve(f, bare("agent:a"), source("emu:b"), other("emu:c"))
	f.Fuzz(func(t *testing.T, request []byte) {
		c := must.Get(net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"}))(t)
		defer c.Close()
		must.OK(t, c.SetDeadline(time.Now().Add(30*time.Second)))
		packet := make([]byte, 1<<17)
		if _, err := c.Read(packet); err != nil || len(request) == 0 {
			return // other workers of the fuzzer are clients too
		}
		if _, err := c.Write(request); err != nil {
			return
		}
		n, err := c.Read(packet)
		if len(request) > 1024 {
			if err == nil && n > 0 {
				t.Errorf("a request of %d bytes is answered", len(request))
			}
			return
		}
		var answer map[string]json.RawMessage
		if err != nil || n > 64<<10 || json.Unmarshal(packet[:n], &answer) != nil || len(answer) != 1 {
			t.Errorf("%q: %q, %v", request, packet[:min(n, 200)], err)
		}
	})
}

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
	out := must.Get(c.Output())(t)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	must.Be(t, len(lines), len(asked), "answers to commands: %s", out)
	for i, line := range lines {
		var answer map[string]any
		command, _, _ := strings.Cut(asked[i], ",")
		if err := json.Unmarshal([]byte(line), &answer); err != nil || (answer[command] == nil) != (command == "/none") {
			t.Errorf("%s: %s, %v", asked[i], line, err)
		}
	}
}
