package main_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestTerminalIsNotAsked: a command writes to a terminal what it has to say, and no questions about
// its colours. Some terminals give no answer to those, and each command waited for it.
func TestTerminalIsNotAsked(t *testing.T) {
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
	c := exec.Command(trapeze, "version")
	c.Env = append(os.Environ(), "TERM=xterm", "CI=")
	c.Stdin, c.Stdout, c.Stderr = terminal, terminal, terminal
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = c.Start()
	_ = terminal.Close()
	if err != nil {
		t.Fatal(err)
	}
	said, _ := io.ReadAll(master) // EIO when the last one has closed the terminal
	if err := c.Wait(); err != nil {
		t.Fatalf("%v: %q", err, said)
	}
	if text := string(said); strings.Contains(text, "\x1b") || !strings.HasPrefix(text, "trapeze ") {
		t.Errorf("%.100q", said)
	}
}
