package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/cli"
)

// TestErrorsInJSON: a command that fails prints one object, be it its own or that
// of the error, and the line on stderr all the same.
func TestErrorsInJSON(t *testing.T) {
	const udp = "emu:?wire=udp://127.0.0.1:0"
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"device":            {[]string{"info", "--device", "emu:?mtu=1", "--json"}, shell.ExitDevice, "mtu"},
		"flag before":       {[]string{"--json", "info", "--colour"}, shell.ExitUsage, "--colour"},
		"flag after":        {[]string{"info", "--colour", "--json"}, shell.ExitUsage, "--colour"},
		"no such command":   {[]string{"fly", "--json"}, shell.ExitUsage, "fly"},
		"stdout used twice": {[]string{"recv", "--device", udp, "--output", "-", "--json"}, shell.ExitUsage, "stdout"},
		"time":              {[]string{"recv", "--device", udp, "--timeout", "10ms", "--json"}, shell.ExitTimeout, "no sender within 10ms"},
		"file":              {[]string{"send", "--device", udp, "--json", "/nonexistent"}, shell.ExitFailure, "no such file"},
		"a flag of its own": {[]string{"demo", "--json", "--duration", "2h"}, shell.ExitUsage, "1ms..1m"},
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, c.args...)
			var r struct {
				Error    string
				ExitCode int `json:"exit_code"`
			}
			d := json.NewDecoder(strings.NewReader(o.stdout))
			d.DisallowUnknownFields()
			if err := d.Decode(&r); err != nil || d.More() {
				t.Fatalf("%v, stdout %q", err, o.stdout)
			}
			should.Hold(t, o.code == c.code && r.ExitCode == c.code && strings.Contains(r.Error, c.says) && o.stderr == "trapeze: "+r.Error+"\n", "%+v", o)
		})
	}
	// What doctor has found is its object, on a host that is not ready.
	o := run(t, "doctor", "--json", "--root", recordedHost(t))
	var r map[string]any
	if err := json.Unmarshal([]byte(o.stdout), &r); err != nil || o.code != shell.ExitFailure || r["could_start"] != false || r["error"] != nil {
		t.Errorf("%v: %+v", err, o)
	}
}

// recordedHost is the root folder of a host without PCI.
func recordedHost(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	must.OK(t, os.Mkdir(filepath.Join(root, "sys"), 0o755))
	return root
}

// full is a stdout on a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestResultsAreLost(t *testing.T) {
	for _, args := range [][]string{
		{"list", "--root", recordedHost(t)}, {"version"}, {"version", "--json"}, {"info"}, {"ping", "-c", "2", "-i", "0s"}, {"help", "exit-codes"},
		{"bind", "--dry-run", "--root", bindableHost(t), "0000:03:00.0"},
	} {
		var errs outputtest.Buffer
		code := cli.Program.Run(t.Context(), args, strings.NewReader(""), full{}, &errs)
		if code != shell.ExitFailure || !strings.Contains(errs.String(), "no space left on device") || strings.Count(errs.String(), "\n") != 1 {
			t.Errorf("%v: exit code %d, stderr %q", args, code, errs.String())
		}
	}
}

// bindableHost is the root folder of a host with one NIC, behind an IOMMU, that
// nobody uses.
func bindableHost(t *testing.T) string {
	t.Helper()
	tree := hostpcitest.New(t)
	tree.Function(hostpcitest.NIC())
	tree.Dir("sys/bus/pci/drivers/vfio-pci")
	return string(tree.Root())
}
