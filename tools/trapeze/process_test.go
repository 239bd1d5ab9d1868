package trapeze_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	tool "github.com/trapeze-nic/trapeze/tools/trapeze"
)

// trapeze is the program under test.
var trapeze string

// timeout ends tests that do not end by themselves. Nothing here is meant to take long, but CI
// machines are busy.
const timeout = 2 * time.Minute

// underTest is the variable that makes this program the command.
const underTest = "TRAPEZE_UNDER_TEST"

// TestMain makes this program also the command, which has other processes of its own: go test has
// compiled its packages for these tests, and for a program they would all be compiled again.
func TestMain(m *testing.M) {
	if os.Getenv(underTest) != "" {
		os.Exit(tool.Main())
	}
	os.Exit(nameAndRun(m))
}

// nameAndRun runs the tests with the name of the program in trapeze.
func nameAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "trapeze-program-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	trapeze = filepath.Join(dir, "trapeze")
	self, err := os.Executable()
	if err == nil && os.Link(self, trapeze) != nil { // a link lets other users run it, for whom go test's folder is closed
		err = os.Symlink(self, trapeze)
	}
	if err = errors.Join(err, os.Chmod(dir, 0o755), os.Setenv(underTest, "1")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// needsProgram comes first in tests that wait more than they compute, and run beside each other.
func needsProgram(t *testing.T) {
	t.Helper()
	t.Parallel()
	if testing.Short() {
		t.Skip("it takes long")
	}
}

// process is a trapeze that runs.
type process struct {
	*exec.Cmd
	name   string
	stdout bytes.Buffer
	stderr outputtest.Buffer
	done   chan struct{}
}

// start runs trapeze with args.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return launch(t, exec.Command(trapeze, args...), args[0])
}

// launch starts c, which runs a program under the given name, and ends it with the
// test, or after timeout.
func launch(t *testing.T, c *exec.Cmd, name string) *process {
	t.Helper()
	p := &process{Cmd: c, name: name, done: make(chan struct{})}
	if c.Stdout == nil {
		c.Stdout = &p.stdout
	}
	c.Stderr = &p.stderr
	must.OK(t, p.Start())
	late := time.AfterFunc(timeout, func() { _ = p.Process.Kill() })
	go func() {
		// Exit codes are looked at by those who wait.
		_ = p.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		late.Stop()
		_ = p.Process.Kill()
		<-p.done
	})
	return p
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// code waits for the process to end and returns its exit code, -1 after a
// signal.
func (p *process) code(*testing.T) int {
	<-p.done
	return p.ProcessState.ExitCode()
}

// succeed waits for the process to end well.
func (p *process) succeed(t *testing.T) {
	t.Helper()
	must.Be(t, p.code(t), 0, "the exit code of %s, which says %s", p, &p.stderr)
}

// exit waits at most d and checks the exit code and what is on stderr.
func (p *process) exit(t *testing.T, d time.Duration, code int, says ...string) {
	t.Helper()
	begin := time.Now()
	select {
	case <-p.done:
	case <-time.After(d):
		t.Fatalf("%s still runs after %v; stderr so far is in the log", p.name, d)
	}
	t.Logf("%s ended after %v: %s", p.name, time.Since(begin).Round(time.Millisecond), p.stderr.String())
	should.Be(t, p.ProcessState.ExitCode(), code, "the exit code of %s, with stdout %q", p.name, p.stdout.String())
	for _, s := range says {
		should.Contain(t, p.stderr.String(), s, "%s", p.name)
	}
}

// The limit is generous for what takes a second, so that only what never ends fails.
const long = time.Minute

// midway starts a transfer of a file that comes through a pipe, and returns when
// a part of it has reached the receiver's disk but not all can have.
func midway(t *testing.T) (recv, send *process, dir string) {
	t.Helper()
	dir = t.TempDir()
	r, w, err := os.Pipe()
	must.OK(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	recvAt, sendAt := udpPair(t, "")
	recv = start(t, "recv", "--device", recvAt, "--output", filepath.Join(dir, "out"))
	c := exec.Command(trapeze, "send", "--device", sendAt, "--name", "big", "-")
	c.Stdin = r
	send = launch(t, c, "send")
	must.Get(w.Write(make([]byte, 50_000)))(t)
	waittest.Until(t, "something arrives", func() bool { return writes(t, recv, dir) })
	return recv, send, dir
}

// writes says whether a process has written to a file in a folder that it has open,
// whether the file has a name or not.
func writes(t *testing.T, p *process, dir string) bool {
	t.Helper()
	fds := fmt.Sprintf("/proc/%d/fd", p.Process.Pid)
	entries := must.Get(os.ReadDir(fds))(t)
	for _, e := range entries {
		fd := filepath.Join(fds, e.Name())
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, dir+"/") {
			st, err := os.Stat(fd)
			return err == nil && st.Size() > 0
		}
	}
	return false
}

func signal(t *testing.T, p *process, s syscall.Signal) {
	t.Helper()
	must.OK(t, p.Process.Signal(s))
}

func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	should.Hold(t, err == nil && len(entries) == 0, "left behind: %v, %v", entries, err)
}

func TestReceiverIsKilled(t *testing.T) {
	t.Parallel()
	recv, send, dir := midway(t)
	signal(t, recv, syscall.SIGKILL)
	send.exit(t, long, 4, "trapeze: send big: the other side is gone: the peer is lost", "trapeze recv")
	if names, err := filepath.Glob(filepath.Join(dir, "[^.]*")); err != nil || len(names) != 0 { // a part stays under a hidden name
		t.Errorf("left behind: %v, %v", names, err)
	}
}

func TestSenderIsKilled(t *testing.T) {
	t.Parallel()
	recv, send, dir := midway(t)
	signal(t, send, syscall.SIGKILL)
	recv.exit(t, long, 4, "trapeze: receive: the other side is gone: the peer is lost")
	empty(t, dir)
}

func TestInterrupts(t *testing.T) {
	for name, c := range map[string]struct {
		sender bool
		signal syscall.Signal
		code   int
		says   string
	}{
		"sender, SIGINT":    {true, syscall.SIGINT, 130, "SIGINT"},
		"sender, SIGTERM":   {true, syscall.SIGTERM, 143, "SIGTERM"},
		"sender, SIGHUP":    {true, syscall.SIGHUP, 129, "SIGHUP"},
		"receiver, SIGHUP":  {false, syscall.SIGHUP, 129, "SIGHUP"},
		"receiver, SIGINT":  {false, syscall.SIGINT, 130, "SIGINT"},
		"receiver, SIGTERM": {false, syscall.SIGTERM, 143, "SIGTERM"},
	} {
		t.Run(name, func(t *testing.T) {
			recv, send, dir := midway(t)
			stopped, other := recv, send
			if c.sender {
				stopped, other = send, recv
			}
			signal(t, stopped, c.signal)
			stopped.exit(t, long, c.code, c.says)
			other.exit(t, long, 4, "the other side ended the transfer: interrupted")
			empty(t, dir)
		})
	}
}

func TestPortIsTaken(t *testing.T) {
	recvAt, sendAt := udpPair(t, "")
	first := start(t, "ping", "--serve", "--device", recvAt)
	ping := start(t, "ping", "--device", sendAt, "-c", "3", "-q")
	ping.exit(t, long, 0)
	start(t, "recv", "--device", recvAt).exit(t, long, 3, "address already in use")
	// The one that has it goes on.
	start(t, "ping", "--device", sendAt, "-c", "3", "-q").exit(t, long, 0)
	signal(t, first, syscall.SIGTERM)
	first.exit(t, long, 0, "3 messages")
}

// udpPair returns the addresses of two devices that know each other. extra is appended to both.
func udpPair(t *testing.T, extra string) (receiver, sender string) {
	t.Helper()
	var ports [2]int
	for i := range ports {
		c := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
		defer c.Close()
		ports[i] = c.LocalAddr().(*net.UDPAddr).Port
	}
	receiver = fmt.Sprintf("emu:?wire=udp://127.0.0.1:%d%s", ports[0], extra)
	sender = fmt.Sprintf("emu:?wire=udp://127.0.0.1:%d&peer=127.0.0.1:%d%s", ports[1], ports[0], extra)
	return receiver, sender
}
