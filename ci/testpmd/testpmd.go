// Package testpmd runs DPDK's dpdk-testpmd for tests, with its prompt.
package testpmd

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
)

// Timeout ends tests that do not end by themselves. testpmd takes a second or so to start; CI
// machines are busy.
const Timeout = 2 * time.Minute

// Needs skips a test unless the environment variable required is set, as the script run does,
// and fails it if testpmd or a driver of it is missing.
func Needs(t testing.TB, required, run string, drivers ...string) {
	t.Helper()
	if os.Getenv(required) == "" {
		t.Skip("runs dpdk-testpmd: run " + run)
	}
	_, err := exec.LookPath("dpdk-testpmd")
	must.Hold(t, err == nil, "dpdk-testpmd is missing: install Debian's package dpdk-dev")
	for _, driver := range drivers {
		found, _ := filepath.Glob("/usr/lib/*/dpdk/pmds-*/librte_net_" + driver + ".so*")
		must.Hold(t, len(found) != 0, "DPDK's driver net_%s is missing: install Debian's package librte-meta-net", driver)
	}
}

// Process is a running dpdk-testpmd with its prompt.
type Process struct {
	t    testing.TB
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  outputtest.Buffer // its prompt's
	log  outputtest.Buffer // all that it writes
	done chan struct{}
}

// Options say how testpmd is started.
type Options struct {
	Devices []string // --vdev, in the order of ports
	Mode    string   // forwarding mode
	Queues  int      // of each direction; 1 if zero
	// Core is one more than the processor that its threads run on; 0 for any.
	Core int
	EAL  []string // more options of DPDK
	More []string // more options of testpmd
}

var instances int

// Start starts testpmd, and has it forward once the link of ours is up.
func Start(t testing.TB, linked func() bool, o Options) *Process {
	t.Helper()
	p := Launch(t, o)
	p.Await("link up", linked)
	p.Do("start")
	return p
}

// Launch starts testpmd, without huge pages and PCI devices.
func Launch(t testing.TB, o Options) *Process {
	t.Helper()
	instances++
	// Two threads that may run anywhere: one for the prompt, one for frames.
	anywhere := fmt.Sprintf("(0-%d)", runtime.NumCPU()-1)
	if o.Core > 0 {
		anywhere = strconv.Itoa(o.Core - 1)
	}
	args := append([]string{"--no-huge", "-m", "128", "--no-pci", "--no-telemetry", "--no-shconf",
		"--lcores", "0@" + anywhere + ",1@" + anywhere,
		"--file-prefix", fmt.Sprintf("trapeze%d-%d", os.Getpid(), instances)}, o.EAL...)
	for _, d := range o.Devices {
		args = append(args, "--vdev="+d)
	}
	queues := strconv.Itoa(max(1, o.Queues))
	args = append(args, "--", "-i", "--total-num-mbufs=16384", "--no-lsc-interrupt", "--no-flush-rx", "--forward-mode="+o.Mode, "--rxq="+queues, "--txq="+queues)
	args = append(args, o.More...)
	// Without stdbuf its answers come when its buffer is full.
	args = append([]string{"-oL", "dpdk-testpmd"}, args...)
	p := &Process{t: t, cmd: exec.CommandContext(t.Context(), "stdbuf", args...), done: make(chan struct{})}
	// DPDK's log may break into a line of the prompt.
	p.cmd.Stdout, p.cmd.Stderr = io.MultiWriter(&p.out, &p.log), &p.log
	p.cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+t.TempDir()) // where DPDK leaves files
	p.in = must.Get(p.cmd.StdinPipe())(t)
	must.OK(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ends is seen in its output
	}()
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(args, " "), printable(p.log.String()))
		}
	})
	p.Expect("testpmd> ")
	return p
}

// printable leaves out what a prompt does to a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r >= ' ' && r < 0x7f {
			return r
		}
		return -1
	}, s)
}

// Expect waits until testpmd has written something.
func (p *Process) Expect(what string) {
	p.t.Helper()
	p.Await(fmt.Sprintf("testpmd to write %q", what), func() bool { return strings.Contains(p.out.String(), what) })
}

// Await waits until something is so, while testpmd runs.
func (p *Process) Await(what string, is func() bool) {
	p.t.Helper()
	for end := time.Now().Add(Timeout); !is(); time.Sleep(time.Millisecond) {
		select {
		case <-p.done:
			p.t.Fatalf("waited for %s: testpmd has ended: %v", what, p.cmd.ProcessState)
		default:
		}
		must.Hold(p.t, !time.Now().After(end), "waited in vain for %s", what)
	}
}

// Linked waits until the links of all ports are up. Before, testpmd drops frames to a port
// whose peer has connected, as DPDK sets the port up in a thread of its own. The module ethernet/nffgo calls it.
func (p *Process) Linked() {
	p.t.Helper()
	p.Await("links", func() bool { return !strings.Contains(p.Ask("show port summary all"), "down") })
}

// Do gives a command.
func (p *Process) Do(command string) {
	p.t.Helper()
	must.Get(io.WriteString(p.in, command+"\n"))(p.t)
}

// Ask gives a command and returns what testpmd answers.
func (p *Process) Ask(command string) string {
	p.t.Helper()
	before := len(p.out.String())
	p.Do(command)
	// The prompt comes back with the echo of the next command.
	mark := fmt.Sprintf("no-such-command-%d", before)
	p.Do(mark)
	p.Expect(mark)
	answer, _, _ := strings.Cut(p.out.String()[before:], mark)
	return answer
}

// Statistic returns one of the numbers of "show port stats".
func (p *Process) Statistic(port int, name string) int {
	p.t.Helper()
	m := regexp.MustCompile(name + `: *(\d+)`).FindStringSubmatch(p.Ask(fmt.Sprintf("show port stats %d", port)))
	if m == nil {
		return -1
	}
	return must.Get(strconv.Atoi(m[1]))(p.t)
}

// Kill ends testpmd as a crash does.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// Quit ends testpmd in order.
func (p *Process) Quit() {
	p.t.Helper()
	p.Do("stop")
	p.Do("quit")
	select {
	case <-p.done:
	case <-time.After(Timeout):
		p.t.Error("testpmd does not quit")
		p.Kill()
	}
}
