package main_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/programtest"
)

// trapeze is the binary under test.
var trapeze string

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := programtest.Build("trapeze")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	trapeze = filepath.Join(dir, "trapeze")
	return m.Run()
}

// process is a trapeze that runs.
type process struct {
	*exec.Cmd
	name           string
	stdout, stderr bytes.Buffer
	done           chan struct{}
}

func start(t *testing.T, stdin io.Reader, args ...string) *process {
	t.Helper()
	c := exec.Command(trapeze, args...)
	c.Stdin = stdin
	return launch(t, c, args[0])
}

// launch starts c, which runs trapeze under the given name, and ends it with the
// test.
func launch(t *testing.T, c *exec.Cmd, name string) *process {
	t.Helper()
	p := &process{Cmd: c, name: name, done: make(chan struct{})}
	if c.Stdout == nil {
		c.Stdout = &p.stdout
	}
	c.Stderr = &p.stderr
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		// Exit codes are looked at by those who wait.
		_ = p.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.done
	})
	return p
}

// exit waits at most d and checks the exit code and what is on stderr.
func (p *process) exit(t *testing.T, d time.Duration, code int, says ...string) {
	t.Helper()
	begin := time.Now()
	select {
	case <-p.done:
	case <-time.After(d):
		t.Fatalf("%s still runs after %v; stderr so far is in the log", p.name, d)
	}
	t.Logf("%s ended after %v: %s", p.name, time.Since(begin).Round(time.Millisecond), p.stderr.String())
	if got := p.ProcessState.ExitCode(); got != code {
		t.Errorf("%s: exit code %d instead of %d, stdout %q", p.name, got, code, p.stdout.String())
	}
	for _, s := range says {
		if !strings.Contains(p.stderr.String(), s) {
			t.Errorf("%s: %q is not in %q", p.name, s, p.stderr.String())
		}
	}
}

// addresses are two device addresses on one UDP wire; the second knows the
// first.
func addresses(t *testing.T, options string) (recv, send string) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	port := c.LocalAddr().(*net.UDPAddr).Port
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("emu:?wire=udp://127.0.0.1:%d%s", port, options),
		fmt.Sprintf("emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:%d%s", port, options)
}

// The limit is generous for what takes a second, so that only what never ends fails.
const long = time.Minute

func TestFileArrives(t *testing.T) {
	for name, c := range map[string]struct {
		size    int
		options string
	}{
		"clean wire": {4_000_000, ""},
		"20 % loss":  {1_000_000, "&loss=0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			input, out := filepath.Join(dir, "input"), filepath.Join(dir, "out", "put.bin")
			content := make([]byte, c.size)
			rand.Read(content)
			if err := errors.Join(os.WriteFile(input, content, 0o600), os.Mkdir(filepath.Dir(out), 0o700)); err != nil {
				t.Fatal(err)
			}
			recvAt, sendAt := addresses(t, c.options)
			r := start(t, nil, "recv", "--device", recvAt, "--output", out, "--json")
			s := start(t, nil, "send", "--device", sendAt, "--json", input)
			s.exit(t, long, 0)
			r.exit(t, long, 0)
			got, err := os.ReadFile(out)
			if err != nil || !bytes.Equal(got, content) {
				t.Fatalf("%d of %d bytes arrived, or others: %v", len(got), len(content), err)
			}
			digest := sha256.Sum256(content)
			for _, p := range []*process{r, s} {
				var report struct {
					SHA256 string
					Rate   float64 `json:"mb_per_s"`
				}
				if err := json.Unmarshal(p.stdout.Bytes(), &report); err != nil || report.SHA256 != hex.EncodeToString(digest[:]) {
					t.Errorf("%s: %v in %q", p.name, err, p.stdout.String())
				}
				t.Logf("%s: %.1f MB/s", p.name, report.Rate)
				if p.stderr.Len() != 0 {
					t.Errorf("%s with --json says %q", p.name, p.stderr.String())
				}
			}
			if entries, _ := os.ReadDir(filepath.Dir(out)); len(entries) != 1 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

// midway starts a transfer of a file that comes through a pipe, and returns when
// a part of it has reached the receiver's disk but not all can have.
func midway(t *testing.T) (recv, send *process, dir string) {
	t.Helper()
	dir = t.TempDir()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	recvAt, sendAt := addresses(t, "")
	recv = start(t, nil, "recv", "--device", recvAt, "--output", filepath.Join(dir, "out"))
	send = start(t, r, "send", "--device", sendAt, "--name", "big", "-")
	if _, err := w.Write(make([]byte, 50_000)); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(long); !writes(t, recv, dir); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("nothing arrives")
		}
	}
	return recv, send, dir
}

// writes says whether a process has written to a file in a folder that it has open,
// whether the file has a name or not.
func writes(t *testing.T, p *process, dir string) bool {
	t.Helper()
	fds := fmt.Sprintf("/proc/%d/fd", p.Process.Pid)
	entries, err := os.ReadDir(fds)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		fd := filepath.Join(fds, e.Name())
		if to, err := os.Readlink(fd); err == nil && strings.HasPrefix(to, dir+"/") {
			st, err := os.Stat(fd)
			return err == nil && st.Size() > 0
		}
	}
	return false
}

// promised is how long a side may take to notice that the other is dead.
const promised = 5 * time.Second

func signal(t *testing.T, p *process, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func empty(t *testing.T, dir string) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestReceiverIsKilled(t *testing.T) {
	t.Parallel()
	recv, send, dir := midway(t)
	signal(t, recv, syscall.SIGKILL)
	send.exit(t, promised, 4, "trapeze: send big: the other side is gone: the peer is lost", "trapeze recv")
	if fd, err := unix.Open(dir, unix.O_WRONLY|unix.O_TMPFILE, 0o600); err != nil {
		t.Skipf("the file system of %s has no files without a name, so a hidden one is left: %v", dir, err)
	} else {
		unix.Close(fd)
	}
	empty(t, dir)
}

func TestSenderIsKilled(t *testing.T) {
	t.Parallel()
	recv, send, dir := midway(t)
	signal(t, send, syscall.SIGKILL)
	recv.exit(t, promised, 4, "trapeze: receive: the other side is gone: the peer is lost")
	empty(t, dir)
}

func TestInterrupts(t *testing.T) {
	for name, c := range map[string]struct {
		sender bool
		signal syscall.Signal
		code   int
		says   string
	}{
		"sender, SIGINT":    {true, syscall.SIGINT, 130, "SIGINT"},
		"sender, SIGTERM":   {true, syscall.SIGTERM, 143, "SIGTERM"},
		"sender, SIGHUP":    {true, syscall.SIGHUP, 129, "SIGHUP"},
		"receiver, SIGHUP":  {false, syscall.SIGHUP, 129, "SIGHUP"},
		"receiver, SIGINT":  {false, syscall.SIGINT, 130, "SIGINT"},
		"receiver, SIGTERM": {false, syscall.SIGTERM, 143, "SIGTERM"},
	} {
		t.Run(name, func(t *testing.T) {
			recv, send, dir := midway(t)
			stopped, other := recv, send
			if c.sender {
				stopped, other = send, recv
			}
			signal(t, stopped, c.signal)
			stopped.exit(t, promised, c.code, c.says)
			other.exit(t, promised, 4, "the other side ended the transfer: interrupted")
			empty(t, dir)
		})
	}
}

func TestPortIsTaken(t *testing.T) {
	recvAt, sendAt := addresses(t, "")
	first := start(t, nil, "ping", "--serve", "--device", recvAt)
	ping := start(t, nil, "ping", "--device", sendAt, "-c", "3", "-q")
	ping.exit(t, long, 0)
	start(t, nil, "recv", "--device", recvAt).exit(t, long, 3, "address already in use")
	// The one that has it goes on.
	start(t, nil, "ping", "--device", sendAt, "-c", "3", "-q").exit(t, long, 0)
	signal(t, first, syscall.SIGTERM)
	first.exit(t, long, 0, "3 messages")
}

func TestUsage(t *testing.T) {
	start(t, nil, "send", "--device", "emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:9", "/nonexistent").exit(t, long, 1, "trapeze: open /nonexistent: no such file or directory")
	start(t, nil, "recv", "--bogus").exit(t, long, 2, "--bogus")
	start(t, nil, "info", "--device", "emu:?mtu=1").exit(t, long, 3, "mtu")
	start(t, nil, "version").exit(t, long, 0)
}
