package commands_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMemoryInterrupted: Ctrl-C has bench and demo show what they have measured until then, and
// end with the exit code of that.
func TestMemoryInterrupted(t *testing.T) {
	needsProgram(t)
	far, near := udpPair(t, "")
	server := start(t, "memory", "serve", "--device", far, "--size", "8M", "--progress", "plain")
	bench := start(t, "memory", "bench", "--device", near, "--write", "--duration", "1m", "--timeout", "20s", "--json")
	interrupt(t, bench, func() bool { return strings.Contains(server.stderr.String(), "MB/s written") })
	var b struct {
		Write struct {
			Bytes int64   `json:"bytes"`
			Rate  float64 `json:"mb_per_s"`
		} `json:"write"`
		Read       *struct{} `json:"read"`
		P50        *float64  `json:"p50_us"`
		Incomplete string    `json:"incomplete"`
	}
	if code, err := bench.code(t), json.Unmarshal(bench.stdout.Bytes(), &b); code != 130 || err != nil || b.Write.Bytes == 0 || b.Write.Rate <= 0 || b.Read != nil || b.P50 != nil || b.Incomplete == "" {
		t.Errorf("bench: exit code %d, %v, %+v", code, err, b)
	}
	// Its file is there once the first job is done.
	folder := t.TempDir()
	demo := start(t, "memory", "demo", "--size", "32M", "--memory", "8M", "--folder", folder, "--json")
	interrupt(t, demo, func() bool {
		list, err := fs.Glob(os.DirFS(folder), "*")
		return err == nil && len(list) > 0
	})
	type job struct {
		Rate   float64 `json:"mb_per_s"`
		Sorted bool    `json:"sorted"`
	}
	var d struct {
		Network, File job
		Incomplete    string
	}
	if code, err := demo.code(t), json.Unmarshal(demo.stdout.Bytes(), &d); code != 130 || err != nil || !d.Network.Sorted || d.Network.Rate <= 0 || d.File.Sorted || d.Incomplete == "" {
		t.Errorf("demo: exit code %d, %v, %+v", code, err, d)
	}
	// Before that, nothing says how many records were sorted.
	demo = start(t, "memory", "demo", "--size", "256M", "--json", "--progress", "plain")
	interrupt(t, demo, func() bool { return strings.Contains(demo.stderr.String(), " MB (") })
	var keys map[string]json.RawMessage
	if code, err := demo.code(t), json.Unmarshal(demo.stdout.Bytes(), &keys); code != 130 || err != nil || keys["incomplete"] == nil || keys["digest"] != nil || keys["records"] != nil || keys["file"] != nil {
		t.Errorf("demo: exit code %d, %v, %s", code, err, &demo.stdout)
	}
}

// interrupt sends SIGINT to a process when it has come so far.
func interrupt(t *testing.T, p *process, far func() bool) {
	t.Helper()
	awaitProgress(t, p, far)
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

// awaitProgress waits until a process has come so far.
func awaitProgress(t *testing.T, p *process, far func() bool) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !far(); time.Sleep(time.Millisecond) {
		if len(p.done) > 0 || time.Now().After(deadline) {
			t.Fatalf("%s: it does not come so far: %s", strings.Join(p.cmd.Args[1:], " "), &p.stderr)
		}
	}
}
