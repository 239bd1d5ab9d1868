package commands_test

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMemoryInterrupted: Ctrl-C ends a demo with the exit code of that.
func TestMemoryInterrupted(t *testing.T) {
	needsProgram(t)
	demo := start(t, "memory", "demo", "--size", "512M", "--json", "--progress", "plain")
	interrupt(t, demo, func() bool { return strings.Contains(demo.stderr.String(), " MB (") })
	if code := demo.code(t); code != 130 || !strings.Contains(demo.stdout.String(), "SIGINT") {
		t.Errorf("exit code %d, %s", code, &demo.stdout)
	}
}

// interrupt sends SIGINT to a process when it has come so far.
func interrupt(t *testing.T, p *process, far func() bool) {
	t.Helper()
	awaitProgress(t, p, far)
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// awaitProgress waits until a process has come so far.
func awaitProgress(t *testing.T, p *process, far func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !far(); time.Sleep(time.Millisecond) {
		if len(p.done) > 0 || time.Now().After(deadline) {
			t.Fatalf("%s: it does not come so far: %s", strings.Join(p.cmd.Args[1:], " "), &p.stderr)
		}
	}
}
