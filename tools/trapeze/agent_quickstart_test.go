package trapeze_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// TestAgentQuickStart does what docs/agent.md begins with: an agent, and another user's programs.
// Only root can become another user; others do it as themselves.
func TestAgentQuickStart(t *testing.T) {
	text := must.Get(os.ReadFile("../../docs/agent.md"))(t)
	_, file, ok := strings.Cut(string(text), "<<'END'\n")
	file, _, ended := strings.Cut(file, "\nEND\n")
	must.Hold(t, ok && ended && strings.Contains(file, "/tmp/agent.sock"), "the quick start has another form: %q", file)
	dir, err := os.MkdirTemp("", "quickstart") // t.TempDir lets no other user in
	if err == nil {
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o777)
	}
	socket, config, input, output := filepath.Join(dir, "agent.sock"), filepath.Join(dir, "agent.toml"), filepath.Join(dir, "in"), filepath.Join(dir, "out.bin")
	if err == nil {
		err = os.WriteFile(config, []byte(strings.ReplaceAll(file, "/tmp/agent.sock", socket)), 0o644)
	}
	if err == nil {
		err = os.WriteFile(input, []byte("a file"), 0o644)
	}
	program, operr := os.Open(trapeze)
	must.Hold(t, err == nil && operr == nil, "%+v %+v", err, operr)
	defer program.Close()
	agent := exec.Command(trapeze, "agent", "--file", config)
	said, err := agent.StderrPipe()
	if err == nil {
		err = agent.Start()
	}
	must.OK(t, err)
	defer func() {
		_ = agent.Process.Signal(syscall.SIGTERM)
		should.OK(t, agent.Wait())
	}()
	line := make([]byte, 256)
	if n, err := said.Read(line); err != nil || !strings.Contains(string(line[:n]), "serving at "+socket) {
		t.Fatalf("%q, %v", line[:n], err)
	}
	other := func(args ...string) *exec.Cmd {
		c := exec.CommandContext(t.Context(), "/proc/self/fd/3", args...) // the folder of the program is not open to others
		c.ExtraFiles, c.Dir, c.Env = []*os.File{program}, "/", append(os.Environ(), "TRAPEZE_AGENT="+socket)
		if os.Getuid() == 0 {
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		return c
	}
	if said, err := other("agent", "list").CombinedOutput(); err != nil || !strings.Contains(string(said), "local  up") {
		t.Errorf("%v, %s", err, said)
	}
	if said, err := exec.Command(trapeze, "agent", "--file", config).CombinedOutput(); err == nil || !strings.Contains(string(said), "--replace") {
		t.Errorf("a second agent: %v, %s", err, said)
	}
	recv := other("recv", "--device", "agent:local", "--output", output, "--timeout", "30s")
	must.OK(t, recv.Start())
	if said, err := other("send", "--device", "agent:local", input).CombinedOutput(); err != nil {
		t.Errorf("%v, %s", err, said)
	}
	got, err := []byte(nil), recv.Wait()
	if err == nil {
		got, err = os.ReadFile(output)
	}
	should.Hold(t, err == nil && string(got) == "a file", "%q, %v", got, err)
	if os.Getuid() == 0 {
		must.OK(t, os.Chmod(socket, 0o660))
		if said, err := other("agent", "list").CombinedOutput(); err == nil || !strings.Contains(string(said), "mode and group in the agent's file") {
			t.Errorf("%v, %s", err, said)
		}
	}
}
