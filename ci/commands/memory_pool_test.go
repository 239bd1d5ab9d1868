package commands_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMemoryPool: servers publish a name in a file, and clients use all that have it: one more later,
// and one less.
func TestMemoryPool(t *testing.T) {
	needsProgram(t)
	var ports []string
	for range 4 {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, fmt.Sprint("127.0.0.1:", c.LocalAddr().(*net.UDPAddr).Port))
		c.Close()
	}
	folder := t.TempDir()
	names := filepath.Join(folder, "names")
	serve := func(i int) *process {
		p := start(t, "memory", "serve", "--device", "emu:?wire=udp://"+ports[i], "--name", string(rune('a'+i)), "--size", "4M", "--page", "64K",
			"--publish", "memory", "--names", names, "--lease", "2s")
		awaitProgress(t, p, func() bool {
			text, _ := os.ReadFile(names)
			return strings.Count(string(text), "memory") == i+1
		})
		return p
	}
	device := fmt.Sprintf("emu:?wire=udp://%s&peer=%s", ports[3], strings.Join(ports[:3], ","))
	input := randomFile(t, 1<<20)
	use := func(more ...string) {
		t.Helper()
		p := start(t, append([]string{"memory", "map", "--device", device, "--pool", "memory", "--names", names, "--copies", "2",
			"--witness", "file:" + filepath.Join(folder, "witness"), "--timeout", "5s", "--json"}, more...)...)
		if p.code(t) != 0 && strings.Contains(p.stderr.String(), "userfaultfd") {
			t.Skipf("mapped memory is not to be had here: %s", &p.stderr)
		}
		p.succeed(t)
	}
	first := serve(0)
	serve(1)
	use("--load", input)
	serve(2)
	use("--touch", "1000")
	if err := first.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	first.succeed(t)
	if text, err := os.ReadFile(names); err != nil || strings.Count(string(text), "memory") != 2 {
		t.Errorf("a server that has ended has left %q, %v", text, err)
	}
	output := filepath.Join(t.TempDir(), "out")
	use("--save", output)
	want, err1 := os.ReadFile(input)
	got, err2 := os.ReadFile(output)
	if err1 != nil || err2 != nil || !bytes.HasPrefix(got, want) {
		t.Errorf("what was loaded is not saved: %v, %v", err1, err2)
	}
	for _, bad := range [][]string{
		{"memory", "serve", "--device", "emu:", "--size", "1M", "--publish", "memory"},
		{"memory", "serve", "--device", "emu:", "--size", "1M", "--publish", "memory", "--names", names, "--lease", "1ms"},
		{"memory", "map", "--device", "emu:", "--pool", "memory"},
	} {
		if p := start(t, bad...); p.code(t) != 2 {
			t.Errorf("%q: exit code %d: %s", bad, p.code(t), &p.stderr)
		}
	}
}
