package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

// TestAgentCheck: agent --check reads the file that it is given.
func TestAgentCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.toml")
	if o := run(t, "agent", "--check", file); o.code != shell.ExitFailure || !strings.Contains(o.stderr, file) {
		t.Errorf("a file that is not there: %+v", o)
	}
	text := must.Get(os.ReadFile("../../../../examples/agent.toml"))(t)
	must.OK(t, os.WriteFile(file, text, 0o600))
	if o := run(t, "agent", "--check", file); o.code != shell.ExitOK || !strings.Contains(o.stdout, "socket ") {
		t.Errorf("%+v", o)
	}
	text = []byte(`mode = "0666"
[nic.a]
address = "emu:"
[[grant]]
name = "narrow"
users = ["65534"]
groups = ["0"]
nics = ["a"]
clients = 1
vis = 8
memory = "16M"
rate = "1M"
rings = false
stations = ["02:00:00:00:01:00/40", "02:00:00:00:02:07"]
[[grant]]
cgroups = ["/pods"]
claimed = true
frames = true
`)
	must.OK(t, os.WriteFile(file, text, 0o600))
	o := run(t, "agent", "--check", file)
	for _, want := range []string{"socket  /run/trapeze/agent.sock\n", "  a     emu:\n",
		"\n  narrow    users 65534 and groups 0     a     1        8    16777216  1000000  1      02:00:00:00:01:00/40,02:00:00:00:02:07/48  false  true      false   false   false\n",
		"\n  grant[1]  cgroups /pods, with a claim  -     16       64   0         0        1      -                                          true   true      true    true    true\n"} {
		if o.code != shell.ExitOK || !strings.Contains(o.stdout, want) {
			t.Errorf("%d: %s\nwant %q", o.code, o.stdout, want)
		}
	}
	if o := run(t, "agent", "--check", file, "--json"); o.code != shell.ExitOK || !strings.Contains(o.stdout, `"02:00:00:00:01:00/40"`) || !strings.Contains(o.stdout, `"who": "users 65534 and groups 0"`) {
		t.Errorf("%+v", o)
	}
}

// TestMissingFiles: what is not there has advice that names the flag for another place.
func TestMissingFiles(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for flag, args := range map[string][]string{
		"--file": {"agent", "--file", missing},
		"--keys": {"fw", "verify", "image:amp", "--keys", missing},
	} {
		if o := run(t, args...); o.code != shell.ExitFailure || !strings.Contains(o.stderr, "give another with "+flag) {
			t.Errorf("%q: %+v", args, o)
		}
	}
}
