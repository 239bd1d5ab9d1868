package main_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// limited runs a command in a process with a limit that the shell's ulimit sets.
func limited(t *testing.T, limit string, args ...string) *process {
	t.Helper()
	return launch(t, exec.Command("sh", append([]string{"-c", "ulimit " + limit + ` && exec "$@"`, "sh", trapeze}, args...)...), args[0])
}

// oneLine checks that a command has ended with one line of its own, and not with a
// dump of the Go runtime.
func oneLine(t *testing.T, limit string, p *process) {
	t.Helper()
	<-p.done
	said := p.stderr.String()
	if p.ProcessState.ExitCode() == 0 {
		t.Errorf("ulimit %s: %s succeeds", limit, p.name)
	}
	if !strings.HasPrefix(said, "trapeze: ") || strings.Count(said, "\n") != 1 || !strings.Contains(said, "ulimit "+limit[:2]) {
		t.Errorf("ulimit %s: %s says %.400q", limit, p.name, said)
	}
}

// TestFewFiles: however few files a process may open, it says so in one line.
func TestFewFiles(t *testing.T) {
	for n := 4; n <= 15; n++ {
		limit := fmt.Sprintf("-n %d", n)
		oneLine(t, limit, limited(t, limit, "ping", "-c", "1"))
	}
	limited(t, "-n 5", "info", "--json").exit(t, long, 1, "ulimit -n")
}

// TestLittleAddressSpace: so it does when it may have little address space, as far
// as the Go runtime lets it begin.
func TestLittleAddressSpace(t *testing.T) {
	const limit = "-v 2000000" // KiB
	oneLine(t, limit, limited(t, limit, "ping", "-c", "1"))
}

// TestSmallFiles: a file that may not become as large as it must is an error, and
// nothing of it is left.
func TestSmallFiles(t *testing.T) {
	dir := t.TempDir()
	oneLine(t, "-f 1", limited(t, "-f 1", "fw", "build", "--image", "acl", "--output", dir+"/acl.img"))
	empty(t, dir)
}
