package activation_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/activation"
)

// childVariable, if set, makes the test program one that was started by a
// service manager.
const childVariable = "TRAPEZE_TEST_ACTIVATED"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childVariable); mode != "" {
		child(mode)
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child prints what it was handed, and answers one client of each socket.
func child(mode string) {
	pid := os.Getpid()
	if mode == "other" {
		pid++
	}
	if mode != "garbage" {
		_ = os.Setenv("LISTEN_PID", strconv.Itoa(pid)) // a service manager forks, we cannot
	}
	sockets, err := activation.Sockets()
	for _, s := range sockets {
		fmt.Printf("socket %s %s\n", s.Name, filepath.Base(s.Listener.Addr().String()))
	}
	switch {
	case errors.Is(err, activation.ErrEnvironment):
		fmt.Println("bad environment")
	case err != nil:
		fmt.Println("error")
	}
	again, err := activation.Sockets()
	fmt.Println(len(again), err, os.Getenv("LISTEN_FDS") == "")
	for _, s := range sockets {
		c, err := s.Listener.Accept()
		if err == nil {
			_, err = c.Write([]byte(s.Name))
		}
		if err != nil {
			fmt.Println(err)
			continue
		}
		_ = c.Close()
		_ = s.Listener.Close()
	}
}

func listen(t *testing.T, dir, name string) (string, *os.File) {
	t.Helper()
	path := filepath.Join(dir, name)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return path, f
}

func start(t *testing.T, mode string, files []*os.File, env ...string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(append(os.Environ(), childVariable+"="+mode), env...)
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = files, &out, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

func TestSockets(t *testing.T) {
	dir := t.TempDir()
	path1, file1 := listen(t, dir, "nic0.sock")
	path2, file2 := listen(t, dir, "nic1.sock")
	cmd, out := start(t, "mine", []*os.File{file1, file2}, "LISTEN_FDS=2", "LISTEN_FDNAMES=first")
	// In the order in which the child accepts.
	for _, client := range []struct{ path, want string }{{path1, "first"}, {path2, "unknown"}} {
		path, want := client.path, client.want
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 100)
		if n, err := c.Read(b); string(b[:n]) != want {
			t.Errorf("%s: %q, %v", path, b[:n], err)
		}
		_ = c.Close()
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if want := "socket first nic0.sock\nsocket unknown nic1.sock\n0 <nil> true\n"; out.String() != want {
		t.Errorf("got %q", out)
	}
	if _, err := os.Stat(path1); err != nil {
		t.Errorf("the service manager's socket is gone: %v", err)
	}
}

// paired returns one end of a pair of sockets.
func paired(t *testing.T, kind int) *os.File {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, b := os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b")
	t.Cleanup(func() { _, _ = a.Close(), b.Close() })
	return a
}

func TestSocketsRefuses(t *testing.T) {
	_, socket := listen(t, t.TempDir(), "nic.sock")
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	tcp, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	tcpFile, err := tcp.File()
	if err != nil {
		t.Fatal(err)
	}
	defer tcpFile.Close()
	packets, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "packets.sock"), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	packetsFile, err := packets.File()
	if err != nil {
		t.Fatal(err)
	}
	defer packetsFile.Close()
	datagrams, connected := paired(t, unix.SOCK_DGRAM), paired(t, unix.SOCK_STREAM)
	for _, tt := range []struct {
		name, mode string
		files      []*os.File
		env        []string
		want       string
	}{
		{"not activated", "mine", nil, []string{"LISTEN_FDS="}, "0 <nil> true\n"},
		{"for another process", "other", []*os.File{socket}, []string{"LISTEN_FDS=1"}, "0 <nil> true\n"},
		{"process id is text", "garbage", []*os.File{socket}, []string{"LISTEN_FDS=1", "LISTEN_PID=me"}, "bad environment\n0 <nil> true\n"},
		{"number is text", "mine", []*os.File{socket}, []string{"LISTEN_FDS=one"}, "bad environment\n0 <nil> true\n"},
		{"negative number", "mine", []*os.File{socket}, []string{"LISTEN_FDS=-1"}, "bad environment\n0 <nil> true\n"},
		{"too many", "mine", []*os.File{socket}, []string{"LISTEN_FDS=100000"}, "bad environment\n0 <nil> true\n"},
		{"no socket", "mine", []*os.File{socket, null}, []string{"LISTEN_FDS=2"}, "error\n0 <nil> true\n"},
		{"other kind of socket", "mine", []*os.File{tcpFile}, []string{"LISTEN_FDS=1"}, "bad environment\n0 <nil> true\n"},
		{"of packets", "mine", []*os.File{packetsFile}, []string{"LISTEN_FDS=1"}, "bad environment\n0 <nil> true\n"},
		{"of datagrams", "mine", []*os.File{datagrams}, []string{"LISTEN_FDS=1"}, "bad environment\n0 <nil> true\n"},
		{"of one connection", "mine", []*os.File{socket, connected}, []string{"LISTEN_FDS=2"}, "bad environment\n0 <nil> true\n"},
		{"not there", "mine", nil, []string{"LISTEN_FDS=1"}, "error\n0 <nil> true\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cmd, out := start(t, tt.mode, tt.files, tt.env...)
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			if out.String() != tt.want {
				t.Errorf("got %q, want %q", out, tt.want)
			}
		})
	}
}

func TestNotify(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify.sock"), "@trapeze-notify-test-" + strconv.Itoa(os.Getpid())} {
		c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		t.Setenv("NOTIFY_SOCKET", name)
		for want, notify := range map[string]func() (bool, error){"READY=1": activation.Ready, "STOPPING=1": activation.Stopping} {
			if told, err := notify(); !told || err != nil {
				t.Errorf("%s: %v, %v", want, told, err)
			}
			if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 100)
			if n, err := c.Read(b); string(b[:n]) != want {
				t.Errorf("got %q, %v", b[:n], err)
			}
		}
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none.sock"))
	if told, err := activation.Ready(); told || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nobody there: %v, %v", told, err)
	}
	t.Setenv("NOTIFY_SOCKET", "relative")
	if told, err := activation.Ready(); told || !errors.Is(err, activation.ErrEnvironment) {
		t.Errorf("relative path: %v, %v", told, err)
	}
	t.Setenv("NOTIFY_SOCKET", "")
	if told, err := activation.Ready(); told || err != nil {
		t.Errorf("no service manager: %v, %v", told, err)
	}
}
