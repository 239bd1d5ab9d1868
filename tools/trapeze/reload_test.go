package trapeze_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
)

// TestReload: the ExecReload of the agent's unit succeeds when another agent has taken over, and fails
// when that cannot: the old one goes on.
func TestReload(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../kmod-notes/examples/trapeze-agent.service")
	must.OK(t, err)
	found := regexp.MustCompile(`(?m)^ExecReload=/bin/sh -c '(.*)'$`).FindSubmatch(unit)
	must.Hold(t, found != nil, "the unit has no such ExecReload")
	dir := t.TempDir()
	good, bad, socket := filepath.Join(dir, "good.toml"), filepath.Join(dir, "bad.toml"), filepath.Join(dir, "agent.sock")
	text := fmt.Sprintf("socket = %q\n[nic.local]\naddress = \"emu:\"\n[[grant]]\nusers = [\"*\"]\n", socket)
	for file, text := range map[string]string{good: text, bad: text + "unknown = 1\n"} {
		must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	}
	old := start(t, "agent", "--file", good)
	waittest.Until(t, "a socket", func() bool { _, err := os.Stat(socket); return err == nil })
	reload := func(file, code string) {
		t.Helper()
		script := strings.NewReplacer("/usr/local/bin/trapeze agent", trapeze+" agent --file "+file, "$$", "$", "$MAINPID", strconv.Itoa(old.Process.Pid)).Replace(string(found[1]))
		// The new agent has stderr too, and goes on: the end of that is not the end of the reload.
		ended := file + ".code"
		c := exec.Command("/bin/sh", "-c", `/bin/sh -c "$1"; echo $? >"$2"`, "sh", script, ended)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		p := launch(t, c, "reload")
		t.Cleanup(func() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) })
		waittest.Until(t, "the code "+code+" of the reload", func() bool { said, err := os.ReadFile(ended); return err == nil && string(said) == code+"\n" })
	}
	reload(bad, "1")
	select {
	case <-old.done:
		t.Fatal("the old agent has ended")
	default:
	}
	reload(good, "0")
	old.exit(t, long, 0, "serves in place of this one")
	out, err := exec.Command(trapeze, "agent", "list", "--socket", socket).CombinedOutput()
	should.Hold(t, err == nil && strings.Contains(string(out), "local  up"), "%s, %v", out, err)
}
