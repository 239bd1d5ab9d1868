package commands_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/programtest"
)

// trapeze and lab are the programs under test.
var trapeze, lab string

// timeout ends tests that do not end by themselves. Nothing here is meant to take long, but CI
// machines are busy.
const timeout = 2 * time.Minute

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "ci/commands:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	if testing.Short() {
		return m.Run(), nil
	}
	dir, err := programtest.Build("trapeze", "trapeze-lab")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	trapeze, lab = filepath.Join(dir, "trapeze"), filepath.Join(dir, "trapeze-lab")
	return m.Run(), nil
}

// needsProgram comes first in each test of the built programs. These wait more than they compute, and run beside each other.
func needsProgram(t *testing.T) {
	t.Helper()
	t.Parallel()
	if testing.Short() {
		t.Skip("runs the built program: not with -short")
	}
}

// process is a running trapeze.
type process struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr outputtest.Buffer
	done   chan error
}

// start runs trapeze with args. It is killed when the test ends, or after
// timeout.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startAs(t, func(*exec.Cmd) {}, trapeze, args...)
}

// startLab is start for trapeze-lab.
func startLab(t *testing.T, args ...string) *process {
	t.Helper()
	return startAs(t, func(*exec.Cmd) {}, lab, args...)
}

// startAs is start for another program, with changes to how it is run.
func startAs(t *testing.T, change func(*exec.Cmd), program string, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	p := &process{cmd: exec.CommandContext(ctx, program, args...), done: make(chan error, 1)}
	change(p.cmd)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		p.done <- p.cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() { cancel(); <-exited })
	return p
}

// code waits for the process to end and returns its exit code, -1 after a
// signal.
func (p *process) code(t *testing.T) int {
	t.Helper()
	err := <-p.done
	p.done <- err
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", strings.Join(p.cmd.Args[1:], " "), err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// succeed waits for the process to end well.
func (p *process) succeed(t *testing.T) {
	t.Helper()
	if c := p.code(t); c != 0 {
		t.Fatalf("%s: exit code %d\n%s", strings.Join(p.cmd.Args[1:], " "), c, &p.stderr)
	}
}

// udpPair returns the addresses of two devices that are wired to each other.
// extra is appended to both.
func udpPair(t *testing.T, extra string) (receiver, sender string) {
	t.Helper()
	var ports [2]int
	for i := range ports {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ports[i] = c.LocalAddr().(*net.UDPAddr).Port
	}
	receiver = fmt.Sprintf("emu:?wire=udp://127.0.0.1:%d%s", ports[0], extra)
	sender = fmt.Sprintf("emu:?wire=udp://127.0.0.1:%d&peer=127.0.0.1:%d%s", ports[1], ports[0], extra)
	return receiver, sender
}
