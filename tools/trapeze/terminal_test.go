package trapeze_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
)

// TestTop: top shows itself on a screen of its own, obeys keys, and leaves the terminal as it was, however it ends.
func TestTop(t *testing.T) {
	for how, code := range map[string]int{"q": 0, "\x03": 0, "SIGTERM": 143} {
		master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
		if err != nil {
			t.Skip(err)
		}
		defer master.Close()
		number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
		if err == nil {
			err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
		}
		if err != nil {
			t.Skip(err)
		}
		terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
		if err != nil {
			t.Skip(err)
		}
		defer terminal.Close()
		before, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
		must.OK(t, err)
		c := exec.Command(trapeze, "top", "--interval", "50ms")
		c.Stdin, c.Stdout, c.Stderr = terminal, terminal, terminal
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		must.OK(t, c.Start())
		var said outputtest.Buffer
		go func() { _, _ = io.Copy(&said, master) }()
		waittest.Until(t, "the screen", func() bool { return strings.Contains(said.String(), "q end") })
		if how == "SIGTERM" {
			err = c.Process.Signal(syscall.SIGTERM)
		} else {
			_, err = io.WriteString(master, "?\x1b[A"+how)
		}
		must.OK(t, err)
		_ = c.Wait()
		waittest.Until(t, "the end", func() bool { return strings.Contains(said.String(), "\x1b[?1049l") })
		after, err := unix.IoctlGetTermios(int(terminal.Fd()), unix.TCGETS)
		if err != nil || *after != *before || c.ProcessState.ExitCode() != code || !strings.HasPrefix(said.String(), "\x1b[?1049h") {
			t.Errorf("%q: code %d, %+v instead of %+v: %q", how, c.ProcessState.ExitCode(), after, before, said.String())
		}
	}
}
