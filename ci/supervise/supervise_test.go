// Package supervise tests the script run, which .ci/run and ci/vm/run are run by.
package supervise

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// timeout bounds waits that ought to be short.
const timeout = time.Minute

// leaves starts processes that a signal to a process group does not reach: in a session of
// their own, in a group of their own, without a parent. It says where temporary files are and
// which processes there are.
const leaves = `
touch "$TMPDIR/file"
echo "$TMPDIR"
setsid sleep 1000 & echo $!
timeout 1000 sleep 1000 & echo $!
(sleep 1000 >/dev/null & echo $!)
`

// stubborn ignores SIGTERM.
const stubborn = `
sh -c 'trap "" TERM; while :; do sleep 0.1; done' & echo $!
`

// command runs a script, which nothing else supervises.
func command(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("./run", "sh", "-c", script)
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "TRAPEZE_SUPERVISED=")
	return cmd
}

// supervised runs a script, and returns what it has started and where its temporary files are
// once it is ready.
func supervised(t *testing.T, script string) (cmd *exec.Cmd, pids []int, folder string) {
	t.Helper()
	cmd = command(t, script)
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Signal(syscall.SIGTERM) }) // it may have ended
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		if pid, err := strconv.Atoi(lines.Text()); err == nil {
			pids = append(pids, pid)
		} else {
			folder = lines.Text()
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	if _, err := os.Stat(folder + "/file"); err != nil || len(pids) != strings.Count(script, "$!") {
		t.Fatalf("processes %d, %v", pids, err)
	}
	return cmd, pids, folder
}

// gone fails the test if a process is left, or the folder.
func gone(t *testing.T, pids []int, folder string) {
	t.Helper()
	for _, pid := range pids {
		if err := unix.Kill(pid, 0); !errors.Is(err, unix.ESRCH) && !zombie(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	should.Refuse(os.Stat(folder))(t, os.ErrNotExist, "temporary files are left")
}

// zombie reports whether a process has ended, and nobody has asked how.
func zombie(pid int) bool {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return strings.Contains(string(b), ") Z ")
}

// exitCode waits for the end of the script.
func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	timer := time.AfterFunc(timeout, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	var exit *exec.ExitError
	if err := cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// TestSignals: a signal to the script ends all that its command has started.
func TestSignals(t *testing.T) {
	for signal, code := range map[syscall.Signal]int{syscall.SIGTERM: 143, syscall.SIGINT: 130, syscall.SIGHUP: 129} {
		t.Run(signal.String(), func(t *testing.T) {
			t.Parallel()
			cmd, pids, folder := supervised(t, leaves+"echo ready; wait")
			must.OK(t, cmd.Process.Signal(signal))
			should.Be(t, exitCode(t, cmd), code, "exit code")
			gone(t, pids, folder)
		})
	}
}

// TestEnd: the command's end ends what it has left, and its exit code is the script's.
func TestEnd(t *testing.T) {
	t.Parallel()
	cmd, pids, folder := supervised(t, leaves+stubborn+"echo ready; exit 3")
	should.Be(t, exitCode(t, cmd), 3, "exit code")
	gone(t, pids, folder)
}

// TestInterruptible: what is supervised does not ignore SIGINT.
func TestInterruptible(t *testing.T) {
	out, err := command(t, `kill -INT $$; echo "still here"`).CombinedOutput()
	var exit *exec.ExitError
	should.Hold(t, errors.As(err, &exit) && exit.ExitCode() == 130 && len(out) == 0, "%v: %s", err, out)
}

// TestNested: within itself it changes nothing.
func TestNested(t *testing.T) {
	out, err := command(t, `echo "$TMPDIR"; ./run sh -c 'echo "$TMPDIR"'`).CombinedOutput()
	lines := strings.Fields(string(out))
	should.Hold(t, err == nil && len(lines) == 2 && lines[0] == lines[1], "%v: %s", err, out)
}
