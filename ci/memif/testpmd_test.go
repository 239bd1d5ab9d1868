package memif_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience ends tests that do not end by themselves. testpmd takes a second or so to start; CI
// machines are busy.
const patience = 2 * time.Minute

// required is set where these tests are to run; they fail if testpmd is missing.
const required = "TRAPEZE_MEMIF_INTEROP"

// needsTestpmd skips a test unless it was asked for, and fails it if testpmd or a driver
// of it is missing.
func needsTestpmd(t *testing.T) {
	t.Helper()
	if os.Getenv(required) == "" {
		t.Skip("runs dpdk-testpmd: run ci/memif/run")
	}
	if _, err := exec.LookPath("dpdk-testpmd"); err != nil {
		t.Fatal("dpdk-testpmd is missing: install Debian's package dpdk-dev")
	}
	for _, driver := range []string{"memif", "pcap"} {
		if found, _ := filepath.Glob("/usr/lib/*/dpdk/pmds-*/librte_net_" + driver + ".so*"); len(found) == 0 {
			t.Fatalf("DPDK's driver net_%s is missing: install Debian's package librte-meta-net", driver)
		}
	}
}

// output collects what a process writes while others read it.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// testpmd is a running dpdk-testpmd with its prompt.
type testpmd struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  output // its prompt's
	log  output // all that it writes
	done chan struct{}
}

// pmdOptions say how testpmd is started.
type pmdOptions struct {
	devices []string // --vdev, in the order of ports
	mode    string   // forwarding mode
	queues  int      // of each direction; 1 if zero
	eal     []string // more options of DPDK
	more    []string // more options of testpmd
}

var instances int

// startTestpmd starts testpmd, and has it forward once the link of ours is up.
func startTestpmd(t *testing.T, linked func() bool, o pmdOptions) *testpmd {
	t.Helper()
	p := launchTestpmd(t, o)
	p.await("link up", linked)
	p.do("start")
	return p
}

// launchTestpmd starts testpmd, without huge pages and PCI devices.
func launchTestpmd(t *testing.T, o pmdOptions) *testpmd {
	t.Helper()
	instances++
	// Two threads that may run anywhere: one for the prompt, one for frames.
	anywhere := fmt.Sprintf("(0-%d)", runtime.NumCPU()-1)
	args := append([]string{"--no-huge", "-m", "128", "--no-pci", "--no-telemetry", "--no-shconf",
		"--lcores", "0@" + anywhere + ",1@" + anywhere,
		"--file-prefix", fmt.Sprintf("trapeze%d-%d", os.Getpid(), instances)}, o.eal...)
	for _, d := range o.devices {
		args = append(args, "--vdev="+d)
	}
	queues := strconv.Itoa(max(1, o.queues))
	args = append(args, "--", "-i", "--total-num-mbufs=16384", "--no-lsc-interrupt", "--no-flush-rx", "--forward-mode="+o.mode, "--rxq="+queues, "--txq="+queues)
	args = append(args, o.more...)
	// Without stdbuf its answers come when its buffer is full.
	args = append([]string{"-oL", "dpdk-testpmd"}, args...)
	p := &testpmd{t: t, cmd: exec.CommandContext(t.Context(), "stdbuf", args...), done: make(chan struct{})}
	// DPDK's log may break into a line of the prompt.
	p.cmd.Stdout, p.cmd.Stderr = io.MultiWriter(&p.out, &p.log), &p.log
	p.cmd.Env = append(os.Environ(), "RUNTIME_DIRECTORY="+t.TempDir()) // where DPDK leaves files
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // how it ends is seen in its output
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(args, " "), printable(p.log.String()))
		}
	})
	p.expect("testpmd> ")
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

// expect waits until testpmd has written something.
func (p *testpmd) expect(what string) {
	p.t.Helper()
	p.await(fmt.Sprintf("testpmd to write %q", what), func() bool { return strings.Contains(p.out.String(), what) })
}

// await waits until something is so, while testpmd runs.
func (p *testpmd) await(what string, is func() bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		select {
		case <-p.done:
			p.t.Fatalf("waited for %s: testpmd has ended: %v", what, p.cmd.ProcessState)
		default:
		}
		if time.Now().After(end) {
			p.t.Fatalf("waited in vain for %s", what)
		}
	}
}

// do gives a command.
func (p *testpmd) do(command string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, command+"\n"); err != nil {
		p.t.Fatal(err)
	}
}

// ask gives a command and returns what testpmd answers.
func (p *testpmd) ask(command string) string {
	p.t.Helper()
	before := len(p.out.String())
	p.do(command)
	// The prompt comes back with the echo of the next command.
	mark := fmt.Sprintf("no-such-command-%d", before)
	p.do(mark)
	p.expect(mark)
	answer, _, _ := strings.Cut(p.out.String()[before:], mark)
	return answer
}

// statistic returns one of the numbers of "show port stats".
func (p *testpmd) statistic(port int, name string) int {
	p.t.Helper()
	m := regexp.MustCompile(name + `: *(\d+)`).FindStringSubmatch(p.ask(fmt.Sprintf("show port stats %d", port)))
	if m == nil {
		return -1
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

// kill ends testpmd as a crash does.
func (p *testpmd) kill() {
	select {
	case <-p.done:
		return
	default:
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// quit ends testpmd in order.
func (p *testpmd) quit() {
	p.t.Helper()
	p.do("stop")
	p.do("quit")
	select {
	case <-p.done:
	case <-time.After(patience):
		p.t.Error("testpmd does not quit")
		p.kill()
	}
}
