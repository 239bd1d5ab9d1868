package trapeze_test

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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
	if strings.Contains(said, "ThreadSanitizer") {
		t.Skip("the race detector has not found its memory")
	}
	should.Hold(t, p.ProcessState.ExitCode() != 0, "ulimit %s: %s succeeds", limit, p.name)
	if !strings.HasPrefix(said, "trapeze: ") || strings.Count(said, "\n") != 1 || !strings.Contains(said, "ulimit "+limit[:2]) {
		t.Errorf("ulimit %s: %s says %.400q", limit, p.name, said)
	}
}

// TestFewFiles: where a process may open few files, it says so in one line. With less than ten the runtime may have none for its poller.
func TestFewFiles(t *testing.T) {
	for _, n := range []int{10, 12, 15} {
		limit := fmt.Sprintf("-n %d", n)
		oneLine(t, limit, limited(t, limit, "ping", "-c", "1"))
	}
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

// TestWithoutProc: in a root folder that has nothing but the program, NICs open.
func TestWithoutProc(t *testing.T) {
	root := t.TempDir()
	program, err := os.ReadFile(trapeze)
	if err == nil {
		needsNothing(t, program)
		err = os.WriteFile(root+"/trapeze", program, 0o755)
	}
	must.OK(t, err)
	c := exec.CommandContext(t.Context(), "/trapeze", "ping", "-c", "1")
	c.Dir = "/"
	c.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Cloneflags: syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	said, err := c.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skip("this host lets no user make a namespace: ", err)
	}
	should.Hold(t, err == nil && strings.Contains(string(said), "received     1\n"), "%v, %s", err, said)
}

// needsNothing skips a test of a program that the kernel starts by way of another one: with cgo, tests are
// linked to the C library. .ci/run links them as programs are.
func needsNothing(t *testing.T, program []byte) {
	t.Helper()
	file := must.Get(elf.NewFile(bytes.NewReader(program)))(t)
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP {
			t.Skip("these tests are linked to the C library: CGO_ENABLED=0 go test")
		}
	}
}
