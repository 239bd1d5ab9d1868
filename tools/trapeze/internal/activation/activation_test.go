package activation_test

import (
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

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/activation"
)

// childVariable, if set, makes the test program one that was started by a
// service manager.
const childVariable = "TRAPEZE_TEST_ACTIVATED"

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) != "" {
		child()
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child prints what it was handed, and answers one client of each socket.
func child() {
	_ = os.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid())) // a service manager forks, we cannot
	sockets, err := activation.Sockets()
	fmt.Println(len(sockets), err != nil, os.Getenv("LISTEN_FDS") == "")
	for _, s := range sockets {
		c, err := s.Accept()
		if err == nil {
			_, err = c.Write([]byte(filepath.Base(s.Addr().String())))
		}
		if err != nil {
			fmt.Println(err)
			continue
		}
		_ = c.Close()
		_ = s.Close()
	}
}

func listen(t *testing.T, dir, name string) (string, *os.File) {
	t.Helper()
	path := filepath.Join(dir, name)
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	l.SetUnlinkOnClose(false)
	defer l.Close()
	f := must.Get(l.File())(t)
	t.Cleanup(func() { _ = f.Close() })
	return path, f
}

func start(t *testing.T, files []*os.File, env ...string) (*exec.Cmd, *strings.Builder) {
	t.Helper()
	self := must.Get(os.Executable())(t)
	var out strings.Builder
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(append(os.Environ(), childVariable+"=1"), env...)
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr = files, &out, os.Stderr
	must.OK(t, cmd.Start())
	return cmd, &out
}

func TestSockets(t *testing.T) {
	dir := t.TempDir()
	path1, file1 := listen(t, dir, "nic0.sock")
	path2, file2 := listen(t, dir, "nic1.sock")
	cmd, out := start(t, []*os.File{file1, file2}, "LISTEN_FDS=2")
	// In the order in which the child accepts.
	for _, client := range []struct{ path, want string }{{path1, "nic0.sock"}, {path2, "nic1.sock"}} {
		path, want := client.path, client.want
		c := must.Get(net.Dial("unix", path))(t)
		must.OK(t, c.SetDeadline(time.Now().Add(10*time.Second)))
		b := make([]byte, 100)
		if n, err := c.Read(b); string(b[:n]) != want {
			t.Errorf("%s: %q, %v", path, b[:n], err)
		}
		_ = c.Close()
	}
	must.OK(t, cmd.Wait())
	should.Be(t, out.String(), "2 false true\n", "got %q", out)
	if _, err := os.Stat(path1); err != nil {
		t.Errorf("the service manager's socket is gone: %v", err)
	}
}

func TestSocketsRefuses(t *testing.T) {
	_, socket := listen(t, t.TempDir(), "nic.sock")
	null := must.Get(os.Open(os.DevNull))(t)
	defer null.Close()
	tcp := must.Get(net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}))(t)
	defer tcp.Close()
	tcpFile := must.Get(tcp.File())(t)
	defer tcpFile.Close()
	for name, tt := range map[string]struct {
		files []*os.File
		fds   string
		want  string
	}{
		"not activated":        {nil, "", "0 false true\n"},
		"no socket":            {[]*os.File{socket, null}, "2", "0 true true\n"},
		"other kind of socket": {[]*os.File{tcpFile}, "1", "0 true true\n"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, out := start(t, tt.files, "LISTEN_FDS="+tt.fds)
			must.OK(t, cmd.Wait())
			should.Be(t, out.String(), tt.want, "got %q", out)
		})
	}
}

func TestNotify(t *testing.T) {
	for _, name := range []string{filepath.Join(t.TempDir(), "notify.sock"), "@trapeze-notify-test-" + strconv.Itoa(os.Getpid())} {
		c := must.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"}))(t)
		defer c.Close()
		t.Setenv("NOTIFY_SOCKET", name)
		should.OK(t, activation.Notify("READY=1"))
		must.OK(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
		b := make([]byte, 100)
		if n, err := c.Read(b); string(b[:n]) != "READY=1" {
			t.Errorf("got %q, %v", b[:n], err)
		}
	}
	t.Setenv("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none.sock"))
	should.Fail(t, activation.Notify("READY=1"), os.ErrNotExist, "nobody there")
	t.Setenv("NOTIFY_SOCKET", "")
	should.OK(t, activation.Notify("READY=1"), "no service manager")
}
