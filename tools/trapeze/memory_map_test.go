package trapeze_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
)

// TestMemoryMap: a process maps what two servers lend together, and fills it. Another one has all of it.
func TestMemoryMap(t *testing.T) {
	needsProgram(t)
	size := soak.Count(16<<20, 256<<20)
	var ports [3]int
	for i := range ports {
		c := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
		ports[i] = c.LocalAddr().(*net.UDPAddr).Port
		c.Close()
	}
	for i, name := range []string{"a", "b"} {
		start(t, "memory", "serve", "--device", fmt.Sprintf("emu:?wire=udp://127.0.0.1:%d", ports[i]), "--name", name,
			"--size", fmt.Sprint(size), "--page", "64K")
	}
	device := fmt.Sprintf("emu:?wire=udp://127.0.0.1:%d&peer=127.0.0.1:%d,127.0.0.1:%d", ports[2], ports[0], ports[1])
	use := func(more ...string) *process {
		return start(t, append([]string{"memory", "map", "--device", device, "--server", "a", "--server", "b", "--local", "4M", "--timeout", "10s", "--json"}, more...)...)
	}
	input := randomFile(t, int64(size))
	load := use("--load", input)
	if load.code(t) != 0 && strings.Contains(load.stderr.String(), "userfaultfd") {
		t.Skipf("mapped memory is not to be had here: %s", &load.stderr)
	}
	load.succeed(t)
	var r struct {
		Bytes  int64 `json:"bytes"`
		Loaded int64 `json:"loaded_bytes"`
		Faults struct {
			Back uint64 `json:"written_back"`
		} `json:"faults"`
	}
	err := json.Unmarshal(load.stdout.Bytes(), &r)
	should.Hold(t, err == nil && r.Bytes == int64(size) && r.Loaded == r.Bytes && r.Faults.Back >= uint64(size>>16), "%v, %+v", err, r)
	output := filepath.Join(t.TempDir(), "out")
	save := use("--save", output)
	save.succeed(t)
	want := must.Get(os.ReadFile(input))(t)
	should.Same(t, must.Get(os.ReadFile(output))(t), want, "other bytes were saved than loaded")
	// What is there is not replaced, and the command says what to do.
	again := use("--save", output)
	if code := again.code(t); code != 1 || !strings.Contains(lastLine(&again.stderr), "--force") {
		t.Errorf("exit code %d, %s", code, &again.stderr)
	}
	should.Same(t, must.Get(os.ReadFile(output))(t), want, "what was saved has changed")
}

// awaitSaved waits until a process has saved n bytes of a file.
func awaitSaved(t *testing.T, p *process, output string, n int64) {
	t.Helper()
	awaitProgress(t, p, func() bool {
		if p.ended() && strings.Contains(p.stderr.String(), "userfaultfd") {
			t.Skipf("mapped memory is not to be had here: %s", &p.stderr)
		}
		return p.hasWritten(t, output, n)
	})
}

// hasWritten reports whether a process has written n bytes of a file: it has one open in
// the folder of output, with another name.
func (p *process) hasWritten(t *testing.T, output string, n int64) bool {
	t.Helper()
	fds := fmt.Sprintf("/proc/%d/fd", p.Process.Pid)
	entries, err := os.ReadDir(fds)
	if err != nil {
		return false // it has ended
	}
	for _, e := range entries {
		fd := filepath.Join(fds, e.Name())
		if to, err := os.Readlink(fd); err != nil || filepath.Dir(to) != filepath.Dir(output) {
			continue
		}
		if info, err := os.Stat(fd); err == nil && info.Size() >= n {
			return true
		}
	}
	return false
}

// TestMemoryMapInterrupted: a process that is interrupted leaves no part of what it saves.
func TestMemoryMapInterrupted(t *testing.T) {
	needsProgram(t)
	near, far := udpPair(t, "")
	start(t, "memory", "serve", "--device", near, "--size", "64M")
	output := filepath.Join(t.TempDir(), "out")
	p := start(t, "memory", "map", "--device", far, "--local", "1M", "--save", output)
	awaitSaved(t, p, output, 1<<20)
	must.OK(t, p.Process.Signal(os.Interrupt))
	p.code(t)
	entries, err := os.ReadDir(filepath.Dir(output))
	should.Hold(t, err == nil && len(entries) == 0, "it has left %v, %v", entries, err)
}

// TestMemoryMapServerDies: with its only server dead a mapping ends with one account of that.
func TestMemoryMapServerDies(t *testing.T) {
	needsProgram(t)
	near, far := udpPair(t, "")
	server := start(t, "memory", "serve", "--device", near, "--size", "16M")
	output := filepath.Join(t.TempDir(), "out")
	p := start(t, "memory", "map", "--device", far, "--local", "1M", "--save", output, "--touch", "1000000000")
	awaitSaved(t, p, output, 1)
	must.OK(t, server.Process.Kill())
	code := p.code(t)
	should.Hold(t, code != 0 && strings.Count(p.stderr.String(), "no server that has the page answers") == 1, "exit code %d, %s", code, &p.stderr)
}
