package dra_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// needsPods skips a test where no process can have mounts of its own.
func needsPods(t *testing.T) {
	t.Helper()
	if out, err := exec.Command("unshare", "--user", "--map-root-user", "--mount", "true").CombinedOutput(); err != nil {
		t.Skipf("user namespaces cannot be had: %v: %s", err, out)
	}
}

// nodesOfAll are those that each container has below /dev.
var nodesOfAll = []string{"null", "zero", "full", "random", "urandom"}

// pod is a process that has what the runtime gives to a container with devices: the variables and
// no other, the mounts, and the nodes. They come from the rig's host. The image has this machine's
// programs, and those of a folder, and a /tmp of its own.
func (r *rig) pod(ids []string, image string, command ...string) *exec.Cmd {
	r.t.Helper()
	e := r.edits(ids)
	script := []string{"set -e", "mount -t tmpfs none /run", "mkdir /run/dev", "mount -t tmpfs none /run/dev"}
	bind := func(from, to string, options ...string) {
		script = append(script, fmt.Sprintf("mount --bind '%s' '%s'", from, to))
		if len(options) > 0 {
			script = append(script, fmt.Sprintf("mount -o remount,%s '%s'", strings.Join(options, ","), to))
		}
	}
	file := func(path string) {
		script = append(script, fmt.Sprintf("mkdir -p '%s'", filepath.Dir(path)), fmt.Sprintf("touch '%s'", path))
	}
	host := func(path string) string { return r.tree.Root().Path(strings.TrimPrefix(path, "/")) }
	for _, name := range nodesOfAll {
		file("/run/dev/" + name)
		bind("/dev/"+name, "/run/dev/"+name)
	}
	for _, n := range e.DeviceNodes {
		file("/run" + n.Path)
		bind(host(n.Path), "/run"+n.Path)
	}
	script = append(script, "mount --rbind /run/dev /dev", "umount -l /run/dev", "rmdir /run/dev")
	for _, m := range e.Mounts {
		script = append(script, fmt.Sprintf("mkdir -p '%s'", m.ContainerPath))
		bind(host(m.HostPath), m.ContainerPath, m.Options...)
	}
	bind(image, "/usr/local/bin")
	script = append(script, "mount -t tmpfs none /tmp", "cd /", `exec env -i "$@"`)
	args := append([]string{"--user", "--map-root-user", "--mount", "sh", "-c", strings.Join(script, "\n"), "pod"}, e.Env...)
	c := exec.CommandContext(r.ctx, "unshare", append(args, command...)...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return c
}

// output returns what a pod prints; the test fails if the pod does.
func (r *rig) output(ids []string, image string, command ...string) string {
	r.t.Helper()
	out, err := r.pod(ids, image, command...).CombinedOutput()
	must.OK(r.t, err, "%q %s", command, out)
	return string(out)
}

// transfer makes one pod send a file to another. Both commands print the sum of the file.
func (r *rig) transfer(image string, sender, receiver, send, receive []string) {
	r.t.Helper()
	to := r.pod(receiver, image, receive...)
	var got strings.Builder
	to.Stdout, to.Stderr = &got, &got
	must.OK(r.t, to.Start())
	sent, err := r.pod(sender, image, send...).CombinedOutput()
	if err != nil {
		_ = to.Process.Kill() // it would wait for the file
	}
	ended := to.Wait()
	a, b := sumOf.FindString(string(sent)), sumOf.FindString(got.String())
	must.Hold(r.t, err == nil && ended == nil && a != "" && a == b, "sender: %v: %s\nreceiver: %v: %s", err, sent, ended, got.String())
}

// sumOf matches what sha256sum prints.
var sumOf = regexp.MustCompile(`\b[0-9a-f]{64}\b`)

// buildTrapeze builds the command trapeze, which needs no library of its image, and returns its folder. Without
// its profile the packages are those of tests.
func buildTrapeze(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-pgo=off", "-o", folder, "./cmd/trapeze")
	build.Dir, build.Env = "../../..", append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	must.Hold(t, err == nil, "go build: %v\n%s", err, out)
	return folder
}

// startProgram starts a program, which is asked to end when the test ends. If the test fails, it
// shows what the program has said last.
func startProgram(t *testing.T, program string, arguments ...string) *exec.Cmd {
	t.Helper()
	log := must.Get(os.Create(filepath.Join(t.TempDir(), "log")))(t)
	defer log.Close()
	c := exec.Command(program, arguments...)
	c.Stdout, c.Stderr = log, log
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	must.OK(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = c.Wait()                          // with the exit code of the signal
		if t.Failed() {
			text, err := os.ReadFile(log.Name())
			t.Logf("%s, %v:\n%s", program, err, text[max(0, len(text)-4000):])
		}
	})
	return c
}
