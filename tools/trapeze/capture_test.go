package trapeze_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// pinged starts a pair of processes that ping each other until they are stopped, and returns the
// one that serves, with the address of its NIC, once other processes see it.
func pinged(t *testing.T) (owner *process, address string) {
	t.Helper()
	t.Setenv(telemetry.Variable, "test")
	t.Setenv("RUNTIME_DIRECTORY", t.TempDir())
	wire := "emu:?wire=shm:" + filepath.Join(t.TempDir(), "wire")
	address = wire + "&role=listen"
	owner = start(t, "ping", "--serve", "--device", address)
	start(t, "ping", "--device", wire+"&role=connect", "--count", "0", "--interval", "1ms", "--quiet", "--timeout", "1m")
	waittest.Until(t, "a connection", func() bool {
		var r struct {
			NICs []struct {
				Address string
				VIs     int
			}
		}
		out, err := exec.Command(trapeze, "ps", "--interval", "0", "--json").Output()
		if err == nil && json.Unmarshal(out, &r) == nil {
			for _, n := range r.NICs {
				if n.Address == address && n.VIs > 0 {
					return true
				}
			}
		}
		return false
	})
	return owner, address
}

// tshark is what it finds in a file, a line each frame.
func tshark(t *testing.T, file string, args ...string) []string {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	out, err := exec.Command(program, append([]string{"-r", file, "-T", "fields"}, args...)...).Output()
	must.OK(t, err, "%s", out)
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// frames returns the number of frames in a file that is whole, as Wireshark's capinfos counts them. It starts
// sooner than tshark.
func frames(t *testing.T, file string) (n uint64) {
	t.Helper()
	program, err := exec.LookPath("capinfos")
	if err != nil {
		t.Skip("capinfos is not installed")
	}
	out, err := exec.Command(program, "-T", "-r", "-M", "-c", file).CombinedOutput()
	if err == nil {
		_, err = fmt.Sscan(strings.TrimPrefix(string(out), file), &n)
	}
	must.OK(t, err, "%s", out)
	return n
}

// captured is what capture --json prints.
type captured struct {
	Frames, Matched, Dropped uint64
	Ended                    string
}

func (p *process) captured(t *testing.T) (c captured) {
	t.Helper()
	must.OK(t, json.Unmarshal(p.stdout.Bytes(), &c), "%s", p.stdout.String())
	return c
}

// TestCapture: frames of a NIC that another process uses are in a file that tshark reads.
func TestCapture(t *testing.T) {
	owner, address := pinged(t)
	dir := t.TempDir()
	for name, args := range map[string][]string{"a.pcapng": nil, "b.pcapng": {"--snaplen", "64"}} {
		file := filepath.Join(dir, name)
		p := start(t, append([]string{"capture", "--device", address, "--output", file, "--count", "20", "--match", "vi=1,ether=0x88b5", "--json"}, args...)...)
		p.exit(t, long, 0)
		c := p.captured(t)
		should.Hold(t, c.Matched == 20 && c.Frames >= 20 && c.Ended == "count", "%s: %+v", name, c)
		lines := tshark(t, file, "-e", "eth.type", "-e", "frame.cap_len", "-e", "frame.len")
		should.Be(t, len(lines), 20, "%s: frames", name)
		for _, l := range lines {
			f := strings.Split(l, "\t")
			kept, _ := strconv.Atoi(f[1])
			length, _ := strconv.Atoi(f[2])
			if f[0] != "0x88b5" && f[0] != "0x000088b5" || length < 64 || kept != length && (args == nil || kept != 64) {
				t.Errorf("%s: %q", name, l)
			}
		}
	}
	p := start(t, "capture", "--device", strconv.Itoa(owner.Process.Pid), "--output", "-", "--max-bytes", "1K")
	p.exit(t, long, 0, "ended    max-bytes")
	n := p.stdout.Len()
	should.Hold(t, n >= 1024 && n <= 64<<10, "%d bytes on stdout", n)
}

// TestCaptureEnds: a file is whole whoever ends it. That the owner was killed is an error.
func TestCaptureEnds(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(t *testing.T, capture, owner *process)
		code int
		says string
	}{
		"interrupted": {func(t *testing.T, capture, _ *process) { signal(t, capture, syscall.SIGINT) }, 0, ""},
		"closed":      {func(t *testing.T, _, owner *process) { signal(t, owner, syscall.SIGINT) }, 0, ""},
		"killed":      {func(t *testing.T, _, owner *process) { signal(t, owner, syscall.SIGKILL) }, 4, "has ended"},
	} {
		t.Run(name, func(t *testing.T) {
			owner, address := pinged(t)
			file := filepath.Join(t.TempDir(), "a.pcapng")
			p := start(t, "capture", "--device", address, "--output", file, "--json")
			// It has begun once it has mapped the memory that the owner lends.
			waittest.Until(t, "a capture", func() bool {
				maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", p.Process.Pid))
				return err == nil && bytes.Contains(maps, []byte("memfd:"))
			})
			other := start(t, "capture", "--device", address, "--output", "-")
			other.exit(t, long, 1, "captured already")
			time.Sleep(100 * time.Millisecond) // for frames; there may be none
			c.end(t, p, owner)
			p.exit(t, long, c.code, c.says)
			if n := frames(t, file); c.code == 0 && p.captured(t).Matched != n {
				t.Errorf("%d frames in the file, %+v", n, p.captured(t))
			}
			if name == "closed" && p.captured(t).Ended != "closed" {
				t.Errorf("%+v", p.captured(t))
			}
		})
	}
}

// TestCaptureFullDisk: a disk without room is said, nothing is left of the file, and the owner
// goes on.
func TestCaptureFullDisk(t *testing.T) {
	owner, address := pinged(t)
	dir := t.TempDir()
	p := limited(t, "-f 16", "capture", "--device", address, "--output", filepath.Join(dir, "a.pcapng"))
	p.exit(t, long, 1, "--output")
	empty(t, dir)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	c := exec.Command(trapeze, "capture", "--device", address, "--output", "-")
	c.Stdout = full
	launch(t, c, "capture").exit(t, long, 1, "no space left on device")
	start(t, "capture", "--device", address, "--output", filepath.Join(dir, "b.pcapng"), "--count", "1").exit(t, long, 0)
	if info, err := os.Stat(filepath.Join(dir, "b.pcapng")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("who may not look at the NIC may see its frames: %v, %v", info, err)
	}
	select {
	case <-owner.done:
		t.Error("the owner has ended")
	default:
	}
}

// TestLogEnds: log says which process has ended, and that this is the end of what it shows.
func TestLogEnds(t *testing.T) {
	owner, address := pinged(t)
	var out outputtest.Buffer
	c := exec.Command(trapeze, "log", address)
	c.Stdout = &out
	p := launch(t, c, "log")
	waittest.Until(t, "a transfer", func() bool { return out.String() != "" })
	signal(t, owner, syscall.SIGKILL)
	p.exit(t, long, 4, fmt.Sprintf("the process that has the NIC has ended: process %d", owner.Process.Pid))
}
