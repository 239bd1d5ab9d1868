package trapeze_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// TestSignalTwice: timeout(1) signals its child and then its group, so that the child has the
// signal twice within a moment. That is one signal: the command ends in order.
func TestSignalTwice(t *testing.T) {
	needsProgram(t)
	// Two signals at one time are one for the kernel, and the child that has ended sees no second.
	for _, between := range []time.Duration{0, 50 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond, 2 * time.Millisecond} {
		path := filepath.Join(t.TempDir(), "wire")
		c := exec.Command(trapeze, "recv", "--device", "emu:?wire=shm:"+path, "--output", filepath.Join(t.TempDir(), "file"), "--json")
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		p := launch(t, c, "recv")
		awaitProgress(t, p, func() bool { _, err := os.Stat(path); return err == nil })
		if took := signalTwice(t, p, between); took > 200*time.Millisecond {
			t.Logf("the second signal came only %v after the first: this round says nothing", took)
			continue
		}
		var r struct {
			Error    string `json:"error"`
			ExitCode int    `json:"exit_code"`
		}
		if code, err := p.code(t), json.Unmarshal(p.stdout.Bytes(), &r); code != 143 || err != nil || r.ExitCode != 143 {
			t.Fatalf("exit code %d, %v, stdout %q, stderr %q", code, err, &p.stdout, &p.stderr)
		}
	}
}

// signalTwice does what timeout(1) does when time is over, and returns how long both took.
func signalTwice(t *testing.T, p *process, between time.Duration) time.Duration {
	t.Helper()
	start := time.Now()
	for _, to := range []int{p.Process.Pid, -p.Process.Pid} {
		if err := syscall.Kill(to, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
		time.Sleep(between)
	}
	return time.Since(start)
}

// TestSignalAgain: a signal that comes later ends a command that does not end by itself.
func TestSignalAgain(t *testing.T) {
	needsProgram(t)
	pipe := filepath.Join(t.TempDir(), "pipe")
	must.OK(t, syscall.Mkfifo(pipe, 0o600))
	// No other process writes to the pipe: opening it waits, whatever happens.
	p := start(t, "memory", "map", "--device", "emu:?wire=mem:again", "--load", pipe)
	for !p.ended() {
		_ = p.Process.Signal(syscall.SIGTERM) // it may have ended
		time.Sleep(50 * time.Millisecond)
	}
	should.Be(t, p.code(t), -1, "exit code, stderr %s", &p.stderr)
}
