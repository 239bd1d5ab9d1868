package commands_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// coopReads are the reads of one process in what demo --cooperative --json prints.
type coopReads struct {
	Count   int     `json:"count"`
	Own     int     `json:"own"`
	Clients int     `json:"from_clients"`
	Servers int     `json:"from_servers"`
	Ratio   float64 `json:"hit_ratio"`
}

// TestMemoryDemoCooperative: pages that do not fit into the cache of one process come from others. The
// demo itself compares all bytes.
func TestMemoryDemoCooperative(t *testing.T) {
	needsProgram(t)
	folder := t.TempDir()
	p := start(t, "memory", "demo", "--cooperative", "--size", "1M", "--folder", folder, "--json")
	p.succeed(t)
	var r struct {
		Bytes           int64
		Alone, Together *coopReads
		Faults          []struct {
			From string  `json:"from"`
			P50  float64 `json:"p50_us"`
		}
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, &p.stdout)
	}
	a, b := r.Alone, r.Together
	if r.Bytes != 1<<20 || a == nil || b == nil || len(r.Faults) != 3 {
		t.Fatalf("%s", &p.stdout)
	}
	for _, n := range []*coopReads{a, b} {
		if n.Count != 3*128 || n.Own+n.Clients+n.Servers != n.Count || n.Own == 0 {
			t.Errorf("%+v", n)
		}
	}
	if a.Clients != 0 || a.Servers == 0 || b.Clients == 0 || b.Ratio <= a.Ratio {
		t.Errorf("alone %+v, together %+v", a, b)
	}
	for _, f := range r.Faults {
		if f.From == "" || f.P50 <= 0 {
			t.Errorf("%+v", f)
		}
	}
	if list, err := fs.Glob(os.DirFS(folder), "*"); err != nil || len(list) > 0 {
		t.Errorf("it leaves %v, %v", list, err)
	}
	p = start(t, "memory", "demo", "--cooperative", "--size", "1M", "--memory", "1M")
	if p.code(t) != 2 || !strings.Contains(p.stderr.String(), "--memory 1M") {
		t.Errorf("a cache that holds all: %s", &p.stderr)
	}
}

// TestMemoryDemoCooperativeInterrupted: Ctrl-C ends all processes, and the report says how far it came.
func TestMemoryDemoCooperativeInterrupted(t *testing.T) {
	needsProgram(t)
	folder := t.TempDir()
	p := start(t, "memory", "demo", "--cooperative", "--size", "64M", "--folder", folder, "--json", "--progress", "plain")
	interrupt(t, p, func() bool { return strings.Contains(p.stderr.String(), "reading pages") })
	var r struct{ Incomplete string }
	if code, err := p.code(t), json.Unmarshal(p.stdout.Bytes(), &r); code != 130 || err != nil || r.Incomplete == "" {
		t.Errorf("exit code %d, %v, %s", code, err, &p.stdout)
	}
	if list, err := fs.Glob(os.DirFS(folder), "*"); err != nil || len(list) > 0 {
		t.Errorf("it leaves %v, %v", list, err)
	}
}
