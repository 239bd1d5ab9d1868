package agent_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/agent"
	"github.com/trapeze-nic/trapeze/via"
)

// agentArguments, if set, has TestAgentProcess run trapeze agent with these arguments.
const agentArguments = "TRAPEZE_TEST_AGENT"

// TestAgentProcess is the process of an agent of other tests.
func TestAgentProcess(t *testing.T) {
	arguments := os.Getenv(agentArguments)
	if arguments == "" {
		t.Skip("it is for other tests")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { // the test that has started it is over
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	c := agent.Command(&command.Env{Stdout: os.Stdout, Stderr: os.Stderr})
	c.SetArgs(strings.Fields(arguments))
	c.SilenceUsage = true
	if err := c.ExecuteContext(ctx); err != nil {
		os.Exit(4)
	}
	os.Exit(0)
}

// process is an agent in a process of its own.
type process struct {
	cmd  *exec.Cmd
	said chan string // what it has said when it is ready, or when it has ended
	end  chan error
	all  strings.Builder // once end is there
}

// spawn starts trapeze agent with arguments.
func spawn(t testing.TB, env []string, arguments ...string) *process {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestAgentProcess$", "-test.timeout=0")
	cmd.Env = append(append(os.Environ(), agentArguments+"="+strings.Join(arguments, " "), "TRAPEZE_TELEMETRY=off"), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, in, err := os.Pipe()
	must.OK(t, err)
	cmd.Stdout, cmd.Stderr = in, in
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	in.Close()
	must.OK(t, err)
	p := &process{cmd: cmd, said: make(chan string, 1), end: make(chan error, 1)}
	go func() {
		defer out.Close()
		told := false
		for r := bufio.NewScanner(out); r.Scan(); {
			p.all.WriteString(r.Text() + "\n")
			if !told && strings.Contains(r.Text(), "serving at") {
				told = true
				p.said <- r.Text()
			}
		}
		if !told {
			p.said <- p.all.String()
		}
		p.end <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = stdin.Close()
		select {
		case <-p.end:
		case <-time.After(replaceTimeout):
			t.Error("an agent does not end")
		}
	})
	return p
}

// ready waits until the agent serves.
func (p *process) ready(t testing.TB) {
	t.Helper()
	select {
	case said := <-p.said:
		must.Hold(t, strings.Contains(said, "serving at"), "the agent does not serve: %s", said)
	case <-time.After(replaceTimeout):
		t.Fatal("the agent does not serve")
	}
}

// ended waits for the end, and checks the exit code and what it has said.
func (p *process) ended(t testing.TB, code int, want string) {
	t.Helper()
	select {
	case err := <-p.end:
		p.end <- err
		got := p.cmd.ProcessState.ExitCode()
		should.Hold(t, got == code && strings.Contains(p.all.String(), want), "exit code %d, want %d; it says %q, want %q", got, code, p.all.String(), want)
	case <-time.After(replaceTimeout):
		t.Fatal("the agent does not end")
	}
}

// written puts the text of an agent's file into a file.
func written(t testing.TB, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "agent.toml")
	must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestReplaceProcess: the command takes over in a process of its own, in the middle of 100 MB. The old one says which
// process serves, tells the service manager, and ends with code 0.
func TestReplaceProcess(t *testing.T) {
	checkAll(t)
	text, socket := indirect(t)
	file := written(t, text)
	manager := manage(t)
	old := spawn(t, []string{"NOTIFY_SOCKET=" + manager.path, "WATCHDOG_USEC=20000"}, "--file", file)
	old.ready(t)
	from, to := shared(t, socket)
	var next *process
	transfer(t, from, to, func() { next = spawn(t, nil, "--file", file, "--replace") })
	next.ready(t)
	old.ended(t, 0, fmt.Sprintf("process %d serves in place of this one", next.cmd.Process.Pid))
	// The new one, which was started with no service manager, tells that of the old one.
	manager.until(t, fmt.Sprintf("MAINPID=%d", next.cmd.Process.Pid), "WATCHDOG=1")
	should.Hold(t, !strings.Contains(manager.all(), "STOPPING=1"), "the old agent has said that the service stops")
	should.Contain(t, manager.all(), "READY=1", "no agent has said that it is ready")
	exchange(t, from, to, "after")
	_, err := os.Stat(socket)
	should.Hold(t, err == nil, "%+v", err)
	// The path goes with the agent that has it now.
	_ = next.cmd.Process.Signal(unix.SIGTERM)
	none := spawn(t, nil, "--file", written(t, strings.Replace(text, socket, socket+"2", 1)), "--replace")
	none.ended(t, 4, "start this one without --replace")
}

// manager is a service manager.
type manager struct {
	path string
	mu   sync.Mutex
	said []string
}

func manage(t testing.TB) *manager {
	t.Helper()
	m := &manager{path: filepath.Join(t.TempDir(), "notify")}
	c := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"}))(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for b := make([]byte, 100); ; {
			n, err := c.Read(b)
			if err != nil {
				return
			}
			m.mu.Lock()
			m.said = append(m.said, string(b[:n]))
			m.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = c.Close()
		<-ended
	})
	return m
}

func (m *manager) all() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(m.said, "\n")
}

// until waits until it was told one thing, and another one behind that.
func (m *manager) until(t testing.TB, first, then string) {
	t.Helper()
	waittest.Until(t, "the service manager is told "+first+" and "+then, func() bool {
		_, rest, found := strings.Cut(m.all(), first)
		return found && strings.Contains(rest, then)
	})
}

// TestReplaceKilled: new agents are killed at any time. Either the old one goes on, and the stream does not notice,
// or the new one was killed after it had taken over, and the stream ends or goes on with the next.
func TestReplaceKilled(t *testing.T) {
	checkAll(t)
	text, socket := indirect(t)
	file := written(t, text)
	old := begin(t, text)
	from, to := shared(t, socket)
	var s stream
	s.begin(t, from, to)
	kept := 0
	for range 12 {
		s.progress(t, 20)
		next := spawn(t, nil, "--file", file, "--replace")
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond)
		if rand.IntN(3) == 0 { // about where it begins
			for end := time.Now().Add(time.Second); !listening(socket) && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
		}
		_ = next.cmd.Process.Kill()
		err := <-next.end
		next.end <- err
		select {
		case err := <-old.done:
			should.OK(t, err)
			old = begin(t, text) // the new one had everything, and is dead
		case <-time.After(5 * time.Millisecond):
			kept++
		}
	}
	s.progress(t, 100)
	s.end(t)
	t.Logf("%d of 12 times the old agent went on", kept)
	exchange(t, from, to, "after")
	_, _ = from.Close(), to.Close()
	old.end(t)
}

// listening reports whether a socket takes connections.
func listening(socket string) bool {
	c, err := net.Dial("unix", socket)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// TestReplaceAFXDP: the same over AF_XDP, whose port is closed and opened meanwhile: 100 MB arrive whole, and so do
// numbered messages. An interface that goes in the take-over leaves the old agent, and clients of one host, as they were.
func TestReplaceAFXDP(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		again := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestReplaceAFXDP$", "-test.v")
		again.Env = append(os.Environ(), inNamespace+"=1")
		again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		out, err := again.CombinedOutput()
		switch {
		case errors.Is(err, unix.EPERM):
			t.Skip("it takes root")
		case err != nil:
			t.Errorf("%v: %s", err, out)
		case strings.Contains(string(out), "--- SKIP"):
			t.Skipf("%s", out)
		}
		t.Logf("%s", out)
		return
	}
	veth(t)
	text, socket := indirect(t)
	text = strings.Replace(text, "\"emu:\"", "\"eth:left0\"", 1)
	a := begin(t, text)
	here, second := shared(t, socket)
	there, err := via.Open(t.Context(), "emu:?engine=thread&wire=afxdp:right0", via.Options{NoTelemetry: true})
	if err != nil {
		t.Skipf("no AF_XDP: %v", err)
	}
	defer there.Close()
	transfer(t, here, there, func() { a = a.replaced(t, text) })
	transfer(t, there, here, func() { a = a.replaced(t, text) })
	var s stream
	s.begin(t, here, there)
	for range 5 {
		s.progress(t, 100)
		a = a.replaced(t, text)
	}
	s.progress(t, 100)
	s.end(t)
	t.Logf("%d messages over AF_XDP, longest gap %v", s.arrived.Load(), time.Duration(s.gap.Load()))
	link := must.Get(netlink.LinkByName("left0"))(t)
	var local stream
	local.begin(t, here, second)
	local.progress(t, 10)
	_ = there.Close() // it would open the interface again too
	must.OK(t, netlink.LinkDel(link))
	if _, _, err := agent.TakeOver(t.Context(), parse(t, text), quiet); err == nil {
		t.Fatal("taken over without the interface")
	} else {
		t.Log(err)
	}
	local.progress(t, 100)
	local.end(t)
	// The interface comes back, and the old agent opens it.
	veth(t)
	back := must.Get(via.Open(t.Context(), "emu:?engine=thread&wire=afxdp:right0", via.Options{NoTelemetry: true}))(t)
	defer back.Close()
	exchange(t, here, back, "back")
	_, _ = here.Close(), second.Close()
	a.end(t)
}

// inNamespace is set in the process that has a network namespace of its own.
const inNamespace = "TRAPEZE_TEST_NAMESPACE"

// veth makes left0 and right0, which are joined.
func veth(t testing.TB) {
	t.Helper()
	attributes := netlink.NewLinkAttrs()
	attributes.Name = "left0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: "right0"}); err != nil {
		t.Skipf("no veth: %v", err)
	}
	for _, name := range []string{"left0", "right0"} {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		must.OK(t, err)
	}
}
