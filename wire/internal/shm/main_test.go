package shm_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// childVariable, if set, makes the test program a second process: it holds a
// task.
const childVariable = "TRAPEZE_SHM_TEST_CHILD"

// timeout is for what must happen, on any machine.
const timeout = 30 * time.Second

func TestMain(m *testing.M) {
	if s := os.Getenv(childVariable); s != "" {
		if err := runChild(s); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaktest.Main(m)
}

// task is what a second process does.
type task struct {
	// Do is echo, sleep or stream.
	Do    string
	Path  string
	Role  shm.Role
	MTU   int
	Size  int // of frames
	Piece int // of a frame that is shown before it is whole; 0: frames come whole
}

// child is a second process, which ends when its input does.
type child struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Reader
}

// spawn starts a process. It is killed with the test at the latest.
func spawn(t testing.TB, what task) *child {
	t.Helper()
	self := must.Get(os.Executable())(t)
	b := must.Get(json.Marshal(what))(t)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(b))
	cmd.Stderr = os.Stderr
	in := must.Get(cmd.StdinPipe())(t)
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	c := &child{t, cmd, in, bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

// say waits for a line of the process.
func (c *child) line() string {
	c.t.Helper()
	s, err := c.out.ReadString('\n')
	must.Be(c.t, err != nil, false, "the other process says %q, %v", s, err)
	return s[:len(s)-1]
}

// kill ends the process without warning.
func (c *child) kill() {
	c.t.Helper()
	should.OK(c.t, c.cmd.Process.Kill())
	_ = c.cmd.Wait() // it was killed
}

// finish asks the process to end, and checks that it does so without error.
func (c *child) finish() {
	c.t.Helper()
	_ = c.in.Close()
	if err := c.cmd.Wait(); err != nil {
		c.t.Errorf("the other process: %v", err)
	}
}

// open opens a port, closed with the test.
func open(t testing.TB, o shm.Options) *shm.Port {
	t.Helper()
	p := must.Get(shm.New(context.Background(), o))(t)
	t.Cleanup(func() { closePort(t, p) })
	return p
}

func closePort(t testing.TB, p *shm.Port) {
	t.Helper()
	should.OK(t, p.Close())
	// The data path lets go of the memory.
	p.Reserve(0)
	p.Receive()
}

// socket is a path for a socket.
func socket(t testing.TB) string { return filepath.Join(t.TempDir(), "wire") }

func up(t testing.TB, ports ...*shm.Port) {
	t.Helper()
	for _, p := range ports {
		waittest.Until(t, "link up", p.LinkUp)
	}
}

// pair opens both ends of a wire in this process.
func pair(t testing.TB, o shm.Options) (listener, connector *shm.Port) {
	t.Helper()
	o.Path, o.Role = socket(t), shm.RoleListen
	listener = open(t, o)
	o.Role = shm.RoleConnect
	connector = open(t, o)
	up(t, listener, connector)
	return listener, connector
}

// maps counts this process's mappings of wires' memory.
func maps(t testing.TB) int {
	t.Helper()
	b := must.Get(os.ReadFile("/proc/self/maps"))(t)
	return bytes.Count(b, []byte("/memfd:trapeze-shm"))
}

// checkLeaks fails a test that leaves descriptors or mappings behind. It comes
// first in a test.
func checkLeaks(t testing.TB) {
	t.Helper()
	files0 := leaktest.Files(t)
	t.Cleanup(func() {
		should.Be(t, maps(t), 0, "mappings are left")
		should.Be(t, leaktest.Files(t), files0, "file descriptors before the test, after it")
	})
}
