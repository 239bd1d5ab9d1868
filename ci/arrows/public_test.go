package arrows

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// maxPublic is how many packages programs of others can import. It only falls.
const maxPublic = 20

// public reports whether programs of others can import a package at a path inside the module.
func public(path, name string) bool {
	parts := strings.Split(path, "/")
	return name != "main" && name != "" && !slices.Contains(parts, "internal") && !isJoiner(parts[0])
}

// TestPublic counts the public packages. A package is public only if a program of others needs it.
func TestPublic(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.ImportPath}} {{.Name}} {{len .GoFiles}}", "./...")
	cmd.Dir = "../.."
	out := must.Get(cmd.Output())(t)
	var list []string
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		path := strings.TrimPrefix(strings.TrimPrefix(f[0], Module), "/")
		if public(path, f[1]) && f[2] != "0" {
			list = append(list, path)
		}
	}
	should.Hold(t, len(list) <= maxPublic, "%d packages are public, the ceiling is %d:\n%s", len(list), maxPublic, strings.Join(list, "\n"))
}

func TestPublicRule(t *testing.T) {
	for path, want := range map[string]bool{"via": true, "wire/shm": true, "wire/internal/shm": false, "internal/mmio": false,
		"ci/kit/cable": false, "examples/hello": false, "tools/trapeze": false} {
		should.Be(t, public(path, "p"), want, "%s is public", path)
	}
	should.Hold(t, !public("cmd/trapeze", "main"), "a program is public")
}
