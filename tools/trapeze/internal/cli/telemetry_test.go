package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/via"
)

// shownNIC is the address of a NIC that this process has open and shows, with a VI.
func shownNIC(t *testing.T) string {
	t.Helper()
	t.Setenv(telemetry.Variable, "test")
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	address := "emu:?wire=shm:" + filepath.Join(t.TempDir(), "wire")
	nic, err := via.Open(t.Context(), address, via.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nic.Close() })
	if _, err := nic.CreateVI(t.Context(), via.VIAttributes{}, nil, nil); err != nil {
		t.Fatal(err)
	}
	return address
}

// TestOwner: commands show what a process has open, and info leaves the NIC to it.
func TestOwner(t *testing.T) {
	address := shownNIC(t)
	pid := strconv.Itoa(os.Getpid())
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"ps", "--interval", "0"}, []string{address, pid}},
		{[]string{"stats", address, "--all"}, []string{"messages_sent", "wire_sessions", "VI 1"}},
		{[]string{"stats", pid}, []string{address}},
		{[]string{"top", "--once", "--interval", "50ms"}, []string{pid, "SENT/s"}},
		{[]string{"info", "--device", address}, []string{"PID " + pid, "was asked", "1 resets"}},
	} {
		o := run(t, c.args...)
		for _, want := range c.want {
			if o.code != shell.ExitOK || !strings.Contains(o.stdout, want) {
				t.Errorf("%v: %q is not in %+v", c.args, want, o)
			}
		}
	}
	var r struct {
		Owner *struct {
			PID int `json:"pid"`
		} `json:"owner"`
		Features []string `json:"features"`
	}
	if o := run(t, "info", "--device", address, "--json"); json.Unmarshal([]byte(o.stdout), &r) != nil || r.Owner == nil || r.Owner.PID != os.Getpid() || len(r.Features) == 0 {
		t.Errorf("%+v", o)
	}
	if o := run(t, "info", "--json"); json.Unmarshal([]byte(o.stdout), &r) != nil || r.Owner != nil {
		t.Errorf("a NIC that no process has: %+v", o)
	}
}

// TestOwnerRefused: what cannot be is said, and no NIC is opened for it.
func TestOwnerRefused(t *testing.T) {
	address := shownNIC(t)
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"stats", "nothing"}, shell.ExitFailure, "no process shows such a NIC"},
		{[]string{"log", "0"}, shell.ExitFailure, "no process shows such a NIC"},
		{[]string{"log", address, "--count", "-1"}, shell.ExitUsage, "--count"},
		{[]string{"log", address, "--json"}, shell.ExitUsage, "--count"},
		{[]string{"stats", "--watch", "--json"}, shell.ExitUsage, "--watch"},
		{[]string{"stats", "--interval", "1ns"}, shell.ExitUsage, "--interval"},
		{[]string{"ps", "--interval", "2h"}, shell.ExitUsage, "--interval"},
		{[]string{"top"}, shell.ExitUsage, "terminal"},
		{[]string{"capture", "--device", address}, shell.ExitUsage, "--output"},
		{[]string{"capture", "--output", "-", "--json"}, shell.ExitUsage, "stdout"},
		{[]string{"capture", "--output", "-", "--filter", "vi"}, shell.ExitUsage, "number of a VI"},
		{[]string{"capture", "--output", "-", "--duration", "-1s"}, shell.ExitUsage, "--duration"},
		{[]string{"capture", "--output", "-", "--snaplen", "70000"}, shell.ExitUsage, "--snaplen"},
		{[]string{"capture", "--output", "-", "--device", "nothing"}, shell.ExitFailure, "no process shows such a NIC"},
		{[]string{"capture", "--output", "/nowhere/x"}, shell.ExitFailure, "--output"},
		{[]string{"top", "--json"}, shell.ExitUsage, "no JSON"},
	} {
		if o := run(t, c.args...); o.code != c.code || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%v: %+v", c.args, o)
		}
	}
}
