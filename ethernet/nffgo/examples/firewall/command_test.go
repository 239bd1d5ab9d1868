//go:build nffgo

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// testTimeout ends tests that do not end by themselves. They take half a minute where two
// processors are free.
const testTimeout = 10 * time.Minute

// nap is for loops of tests that wait for others, who need the processors.
const nap = 50 * time.Microsecond

// asCommand makes a test program be the command that it tests.
const asCommand = "TRAPEZE_NFFGO_COMMAND"

// process is a running command.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	done chan struct{}
	mu   sync.Mutex
	out  bytes.Buffer
}

// Write implements io.Writer for what the command prints.
func (c *process) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.Write(b)
}

// Output returns what it has printed.
func (c *process) Output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.String()
}

// startProcess starts the command with aclRules, and waits until it says that it has started.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	rules := filepath.Join(t.TempDir(), "rules")
	must.OK(t, os.WriteFile(rules, []byte(aclRules), 0o600))
	c := &process{t: t, cmd: exec.Command(os.Args[0], append(args, "--rules", rules)...), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), asCommand+"=1", "RUNTIME_DIRECTORY="+t.TempDir())
	c.cmd.Stdout, c.cmd.Stderr = c, c
	must.OK(t, c.cmd.Start())
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // how it ends is in ProcessState
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		<-c.done
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(args, " "), c.Output())
		}
	})
	for end := time.Now().Add(testTimeout); !strings.Contains(c.Output(), "started\n"); time.Sleep(time.Millisecond) {
		must.Hold(t, !c.Ended() && time.Now().Before(end), "the command does not start")
	}
	return c
}

// Ended reports whether it has ended.
func (c *process) Ended() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Interrupt ends the command and checks how many of the frames from 0 on it says that it
// has passed and dropped.
func (c *process) Interrupt(frames int) {
	c.t.Helper()
	must.OK(c.t, c.cmd.Process.Signal(syscall.SIGINT))
	select {
	case <-c.done:
	case <-time.After(testTimeout):
		c.t.Fatal("it does not end")
	}
	should.Hold(c.t, c.cmd.ProcessState.Success(), "it ended with %v", c.cmd.ProcessState)
	dropped := 0
	for i := range frames {
		if isDropped(i) {
			dropped++
		}
	}
	want := fmt.Sprintf("rules passed %d dropped %d\n", frames-dropped, dropped)
	should.Hold(c.t, strings.Contains(c.Output(), want), "it does not say %q", want)
}
