package cli_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
)

// serving runs emulate with args until stop is called, which returns how it
// ended.
func serving(t *testing.T, sockets []string, args ...string) (stop func() outcome) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	for _, s := range sockets {
		args = append(args, "--socket", s)
	}
	done := make(chan outcome, 1)
	go func() { done <- runWith(ctx, nil, append([]string{"emulate"}, args...)...) }()
	t.Cleanup(cancel)
	for _, s := range sockets {
		waittest.Until(t, "emulate serves "+s, func() bool {
			c, err := net.Dial("unix", s)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
	return func() outcome { cancel(); return <-done }
}

func socketPaths(t *testing.T, n int) (paths []string) {
	folder := t.TempDir()
	for i := range n {
		paths = append(paths, filepath.Join(folder, "nic"+string(rune('0'+i))))
	}
	return paths
}

func TestEmulate(t *testing.T) {
	sockets := socketPaths(t, 3)
	stop := serving(t, sockets, "--json")
	var info struct{ Backend, PCI string }
	decode(t, run(t, "info", "--json", "--device", "vfio-user:"+sockets[2]), &info)
	should.Hold(t, info.Backend == "vfio-user" && info.PCI == "1234:7250", "info says %+v", info)

	in, content := file(t, "input", 3<<20)
	out := filepath.Join(t.TempDir(), "output")
	received := make(chan outcome, 1)
	go func() {
		received <- run(t, "recv", "--device", "vfio-user:"+sockets[0], "--output", out, "--timeout", "30s")
	}()
	run(t, "send", "--device", "vfio-user:"+sockets[1], "--timeout", "30s", in).exit(t, shell.ExitOK)
	(<-received).exit(t, shell.ExitOK)
	should.Same(t, must.Get(os.ReadFile(out))(t), content)

	o := stop()
	should.Be(t, o.code, shell.ExitOK, "emulate ended with: %s", o.stderr)
	var report struct {
		NICs []struct{ Address, Socket, MAC string }
	}
	decode(t, o, &report)
	if len(report.NICs) != 3 || report.NICs[1].Socket != sockets[1] || report.NICs[1].Address != "vfio-user:"+sockets[1] || report.NICs[0].MAC == report.NICs[1].MAC {
		t.Errorf("emulate says %+v", report)
	}
	for _, s := range sockets {
		_, err := os.Lstat(s)
		should.Hold(t, os.IsNotExist(err), "socket %s is left: %v", s, err)
	}
}

func TestEmulateRefusals(t *testing.T) {
	one, three := socketPaths(t, 1), socketPaths(t, 3)
	plain := filepath.Join(t.TempDir(), "plain")
	must.OK(t, os.WriteFile(plain, []byte("mine"), 0o600))
	busy := socketPaths(t, 1)
	defer serving(t, busy)()
	for _, c := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"no socket", nil, shell.ExitUsage, "--socket"},
		{"an argument", []string{"x"}, shell.ExitUsage, "x"},
		{"no folder", []string{"--socket", "/nonexistent/nic"}, shell.ExitFailure, "no such file"},
		{"a path that is too long", []string{"--socket", "/tmp/" + strings.Repeat("x", 200)}, shell.ExitDevice, "107"},
		{"a file in the way", []string{"--socket", plain}, shell.ExitFailure, "no socket"},
		{"a server in the way", []string{"--socket", busy[0]}, shell.ExitFailure, "listens"},
		{"bad mode", []string{"--socket", one[0], "--mode", "rwx"}, shell.ExitUsage, "0660"},
		{"bad device", []string{"--socket", one[0], "--device", "emu:?smoke=1"}, shell.ExitDevice, "smoke"},
		{"another kind of device", []string{"--socket", one[0], "--device", "pci:0000:00:00.0"}, shell.ExitDevice, "emu:"},
		{"two wires", []string{"--socket", one[0], "--device", "emu:?wire=loop", "--wire", "loop"}, shell.ExitUsage, "--wire"},
		{"a wire in the process", []string{"--socket", one[0], "--wire", "mem:x"}, shell.ExitDevice, "one process"},
		{"several on UDP", []string{"--socket", three[0], "--socket", three[1], "--wire", "udp://127.0.0.1:0"}, shell.ExitDevice, "UDP"},
		{"several on a loop", []string{"--socket", three[0], "--socket", three[1], "--wire", "loop"}, shell.ExitDevice, "loop"},
		{"several with one address", []string{"--socket", three[0], "--socket", three[1], "--device", "emu:?mac=02:00:00:00:00:01"}, shell.ExitDevice, "mac"},
		{"an inline engine", []string{"--socket", one[0], "--device", "emu:?engine=inline"}, shell.ExitDevice, "thread"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, append([]string{"emulate"}, c.args...)...).exit(t, c.code, c.says)
		})
	}
	if b, err := os.ReadFile(plain); err != nil || string(b) != "mine" {
		t.Errorf("the file in the way is %q, %v", b, err)
	}
	for _, p := range append(one, three...) {
		if _, err := os.Lstat(p); !os.IsNotExist(err) {
			t.Errorf("a refused command has left %s", p)
		}
	}
}
