package commands_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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
	for end := time.Now().Add(timeout); ; time.Sleep(10 * time.Millisecond) {
		ready := 0
		for _, s := range sockets {
			if c, err := net.Dial("unix", s); err == nil {
				_ = c.Close()
				ready++
			}
		}
		if ready == n {
			return devices
		}
		if time.Now().After(end) {
			t.Fatalf("emulate does not serve: %s", &p.stderr)
		}
	}
}

// says runs a command that must succeed and decodes what it prints.
func says(t *testing.T, into any, args ...string) {
	t.Helper()
	p := start(t, append(args, "--json")...)
	p.succeed(t)
	if err := json.Unmarshal(p.stdout.Bytes(), into); err != nil {
		t.Fatalf("%v in %s", err, &p.stdout)
	}
}

func statusOf(t *testing.T, device string) (r program) {
	t.Helper()
	says(t, &r, "fw", "status", "--device", device)
	return r
}

// TestProgramsBetweenProcesses: what one process loads, others find, use and roll
// back.
func TestProgramsBetweenProcesses(t *testing.T) {
	needsProgram(t)
	nics := served(t, 2)
	image := filepath.Join(t.TempDir(), "count.img")
	start(t, "fw", "build", "--image", "count", "--output", image).succeed(t)
	var loaded program
	says(t, &loaded, "load", "--device", nics[0], "image:amp")
	amp := loaded.Program.Digest
	says(t, &loaded, "load", "--device", nics[0], image)
	if p := statusOf(t, nics[0]).Program; p.State != "running" || p.Name != "count" || p.Digest != loaded.Program.Digest || p.Digest == amp {
		t.Errorf("%+v", p)
	}

	input := randomFile(t, 2_000_003)
	output := filepath.Join(t.TempDir(), "out.bin")
	recv := start(t, "recv", "--device", nics[0], "--output", output)
	send := start(t, "send", "--device", nics[1], input)
	send.succeed(t)
	recv.succeed(t)
	if got, want := digestOf(t, output), digestOf(t, input); got != want {
		t.Errorf("sha256 %s arrived, %s was sent", got, want)
	}

	start(t, "fw", "rollback", "--device", nics[0]).succeed(t)
	if p := statusOf(t, nics[0]).Program; p.State != "running" || p.Digest != amp {
		t.Errorf("%+v", p)
	}
	var maps struct {
		Results []struct {
			Entries []struct{ Key, Value string }
		}
	}
	start(t, "load", "--device", nics[0], "image:ipt").succeed(t)
	says(t, &maps, "fw", "map", "--device", nics[0], "image:ipt", "entries", "set", "05000000", "0100000002000000", "get", "05000000")
	if len(maps.Results) != 2 || maps.Results[1].Entries[0].Value != "0100000002000000" {
		t.Errorf("%+v", maps)
	}
}

// TestLoadRefused: the exit codes of trapeze help exit-codes, and the program that
// ran runs on.
func TestLoadRefused(t *testing.T) {
	needsProgram(t)
	nic := served(t, 1)[0]
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	start(t, "fw", "build", "--image", "count", "--output", in("good")).succeed(t)
	start(t, "fw", "build", "--image", "count", "--for", "15b3:1017", "--output", in("elsewhere")).succeed(t)
	good, err := os.ReadFile(in("good"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"truncated": string(good[:len(good)/2]), "text": "no image", "empty": "",
		"damaged": strings.Replace(string(good), "count\x00", "cOunt\x00", 1),
	} {
		if err := os.WriteFile(in(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	start(t, "load", "--device", nic, "image:amp").succeed(t)
	for _, c := range []struct {
		code int
		args []string
		says string
	}{
		{1, []string{"load", "--device", nic, in("truncated")}, "truncated"},
		{1, []string{"load", "--device", nic, in("text")}, "text"},
		{1, []string{"load", "--device", nic, in("empty")}, "empty"},
		{1, []string{"load", "--device", nic, in("damaged")}, "damaged"},
		{1, []string{"load", "--device", nic, in("none")}, "no such file"},
		{1, []string{"load", "--device", nic, in("elsewhere")}, "15b3:1017"},
		{1, []string{"load", "--device", "pci:0000:00:00.0", in("good")}, "not signed"},
		{1, []string{"fw", "rollback", "--device", nic}, "no previous image"},
		{1, []string{"fw", "map", "--device", nic, "image:acl", "rules"}, "another image"},
		{2, []string{"load", in("good")}, "--device"},
		{2, []string{"load", "--device", nic}, "takes IMAGE, and was given no arguments"},
		{2, []string{"load", "--device", nic, "image:none"}, "cut-through"},
		{3, []string{"load", "--device", "vfio-user:" + in("nobody"), in("good")}, "nobody"},
		{3, []string{"fw", "status", "--device", "nonsense"}, "address"},
	} {
		p := start(t, c.args...)
		if code := p.code(t); code != c.code || !strings.Contains(p.stderr.String(), c.says) || p.stdout.Len() != 0 {
			t.Errorf("%v: exit code %d instead of %d, stderr %q, stdout %q", c.args, code, c.code, &p.stderr, &p.stdout)
		}
		if p := statusOf(t, nic).Program; p.State != "running" || p.Name != "amp" {
			t.Fatalf("%v: now %+v", c.args, p)
		}
	}
}

// TestLoadInterrupted sends Ctrl-C at any time: the old program or the new one runs.
func TestLoadInterrupted(t *testing.T) {
	needsProgram(t)
	nic := served(t, 1)[0]
	start(t, "load", "--device", nic, "image:amp").succeed(t)
	interrupted := 0
	for i := range 20 {
		p := start(t, "load", "--device", nic, "image:flow-steer")
		time.Sleep(time.Duration(i) * 3 * time.Millisecond)
		_ = p.cmd.Process.Signal(syscall.SIGINT) // it may have ended
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
