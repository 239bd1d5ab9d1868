package cli_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

// TestAgentCheck: agent --check reads the file that it is given.
func TestAgentCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.toml")
	run(t, "agent", "--check", file).exit(t, shell.ExitFailure, file)
	text := must.Get(os.ReadFile("../../../../examples/agent.toml"))(t)
	must.OK(t, os.WriteFile(file, text, 0o600))
	run(t, "agent", "--check", file).exit(t, shell.ExitOK, "socket ")
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
	run(t, "agent", "--check", file).exit(t, shell.ExitOK, "socket  /run/trapeze/agent.sock\n", "  a     emu:\n",
		"\n  narrow    users 65534 and groups 0     a     1        8    16777216  1000000  1      02:00:00:00:01:00/40,02:00:00:00:02:07/48  false  true      false   false   false\n",
		"\n  grant[1]  cgroups /pods, with a claim  -     16       64   0         0        1      -                                          true   true      true    true    true\n")
	run(t, "agent", "--check", file, "--json").exit(t, shell.ExitOK, `"02:00:00:00:01:00/40"`, `"who": "users 65534 and groups 0"`)
}

// TestMissingFiles: what is not there has advice that names the flag for another place.
func TestMissingFiles(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for flag, args := range map[string][]string{
		"--file": {"agent", "--file", missing},
		"--keys": {"fw", "verify", "image:amp", "--keys", missing},
	} {
		run(t, args...).exit(t, shell.ExitFailure, "give another with "+flag)
	}
}
