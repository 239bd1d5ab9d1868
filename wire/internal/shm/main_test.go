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
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
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
	// Do is echo, sleep, lend, sink or stream.
	Do     string
	Path   string
	Role   shm.Role
	MTU    int
	Ring   int
	Share  bool
	Size   int // of frames
	Piece  int // of a frame that is shown before it is whole; 0: frames come whole
	Frames int // 0: until the other end is closed
	CPU    int // to run on; -1: any
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
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(what)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), childVariable+"="+string(b))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		c.t.Fatalf("the other process says %q, %v", s, err)
	}
	return s[:len(s)-1]
}

// kill ends the process without warning.
func (c *child) kill() {
	c.t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		c.t.Error(err)
	}
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

// pin has this goroutine run on one processor, if there are two, until the
// function that it returns is called.
func pin(cpu int) (unpin func()) {
	var before, set unix.CPUSet
	if cpu < 0 || runtime.NumCPU() < 2 {
		return func() {}
	}
	runtime.LockOSThread()
	_ = unix.SchedGetaffinity(0, &before)
	set.Set(cpu)
	_ = unix.SchedSetaffinity(0, &set)
	return func() {
		_ = unix.SchedSetaffinity(0, &before)
		runtime.UnlockOSThread()
	}
}

// open opens a port, closed with the test.
func open(t testing.TB, o shm.Options) *shm.Port {
	t.Helper()
	p, err := shm.New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePort(t, p) })
	return p
}

func closePort(t testing.TB, p *shm.Port) {
	t.Helper()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
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
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(b, []byte("/memfd:trapeze-shm"))
}

// checkLeaks fails a test that leaves descriptors or mappings behind. It comes
// first in a test.
func checkLeaks(t testing.TB) {
	t.Helper()
	files0 := leaktest.Files(t)
	t.Cleanup(func() {
		if n := maps(t); n != 0 {
			t.Errorf("%d mappings are left", n)
		}
		if n := leaktest.Files(t); n != files0 {
			t.Errorf("%d file descriptors before the test, %d after it", files0, n)
		}
	})
}
