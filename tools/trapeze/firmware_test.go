package trapeze_test

import (
	"encoding/json"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// program is what load --json and fw status --json promise to say.
type program struct {
	Program struct {
		State   string `json:"state"`
		Name    string `json:"name"`
		Version string `json:"version"`
		Digest  string `json:"digest"`
		Slot    *int   `json:"slot"`
	} `json:"program"`
}

// served starts NICs on sockets and returns their addresses.
func served(t *testing.T, n int) (devices []string) {
	t.Helper()
	folder, args := t.TempDir(), []string{"emulate"}
	var sockets []string
	for i := range n {
		s := filepath.Join(folder, "nic"+string(rune('0'+i)))
		sockets, devices, args = append(sockets, s), append(devices, "vfio-user:"+s), append(args, "--socket", s)
	}
	p := start(t, args...)
	for _, s := range sockets {
		awaitProgress(t, p, func() bool {
			c, err := net.Dial("unix", s)
			if err == nil {
				_ = c.Close()
			}
			return err == nil
		})
	}
	return devices
}

// says runs a command that must succeed and decodes what it prints.
func says(t *testing.T, into any, args ...string) {
	t.Helper()
	p := start(t, append(args, "--json")...)
	p.succeed(t)
	must.OK(t, json.Unmarshal(p.stdout.Bytes(), into), "in %s", &p.stdout)
}

func statusOf(t *testing.T, device string) (r program) {
	t.Helper()
	says(t, &r, "fw", "status", "--device", device)
	return r
}

// TestLoadInterrupted sends Ctrl-C at any time: the old program or the new one runs.
func TestLoadInterrupted(t *testing.T) {
	needsProgram(t)
	nic := served(t, 1)[0]
	start(t, "load", "--device", nic, "image:amp").succeed(t)
	interrupted := 0
	for i := range 8 {
		p := start(t, "load", "--device", nic, "image:flow-steer")
		time.Sleep(time.Duration(i) * 7 * time.Millisecond)
		_ = p.Process.Signal(syscall.SIGINT) // it may have ended
		// Before main catches signals, one ends the process.
		if code := p.code(t); code == 130 || code == -1 {
			interrupted++
		} else if code != 0 {
			t.Fatalf("exit code %d: %s", code, &p.stderr)
		}
		s := statusOf(t, nic).Program
		if s.State != "running" || s.Name != "amp" && s.Name != "flow-steer" {
			t.Fatalf("attempt %d: %+v; %s", i, s, &p.stderr)
		}
		if s.Name == "flow-steer" {
			start(t, "fw", "rollback", "--device", nic).succeed(t)
		}
	}
	t.Logf("%d interrupted", interrupted)
}
