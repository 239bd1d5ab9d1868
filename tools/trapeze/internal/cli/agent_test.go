package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

// TestAgentCheck: agent --check reads the file that it is given.
func TestAgentCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.toml")
	if o := run(t, "agent", "--check", file); o.code != shell.ExitFailure || !strings.Contains(o.stderr, file) {
		t.Errorf("a file that is not there: %+v", o)
	}
	text, err := os.ReadFile("../../../../examples/agent.toml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if o := run(t, "agent", "--check", file); o.code != shell.ExitOK || !strings.HasPrefix(o.stdout, file+": ") {
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
