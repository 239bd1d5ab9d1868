package commands_test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/netmem"
)

// TestMemoryDemo: what was written to other memory is read again.
func TestMemoryDemo(t *testing.T) {
	needsProgram(t)
	p := start(t, "memory", "demo", "--size", "32M", "--memory", "2M", "--json")
	p.succeed(t)
	var r struct {
		Bytes   int64   `json:"bytes"`
		Cache   int64   `json:"cache_bytes"`
		Write   float64 `json:"write_mb_per_s"`
		Read    float64 `json:"read_mb_per_s"`
		Misses  uint64  `json:"misses"`
		Fetches uint64  `json:"fetches"`
		Back    uint64  `json:"written_back"`
		P50     float64 `json:"miss_p50_us"`
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, &p.stdout)
	}
	pages := uint64(r.Bytes / netmem.DefaultPage)
	if r.Bytes != 32<<20 || r.Cache != 2<<20 || r.Write <= 0 || r.Read <= 0 || r.Fetches < pages || r.Back < pages || r.Misses == 0 || r.P50 <= 0 {
		t.Errorf("%+v", r)
	}
}

// TestMemoryBetweenProcesses lends memory in one process, and uses and asks it from others.
func TestMemoryBetweenProcesses(t *testing.T) {
	needsProgram(t)
	far, near := udpPair(t, "")
	server := start(t, "memory", "serve", "--device", far, "--size", "8M", "--page", "16K", "--name", "here", "--json")
	reader := start(t, "memory", "cooperate", "--device", near, "--server", "here", "--cache", "1M", "--reads", "1000", "--timeout", "20s", "--json")
	reader.succeed(t)
	var b struct {
		Page  int `json:"page_bytes"`
		Reads struct {
			Count   int64   `json:"count"`
			Servers int64   `json:"from_servers"`
			P50     float64 `json:"server_p50_us"`
			P99     float64 `json:"server_p99_us"`
		} `json:"reads"`
	}
	if err := json.Unmarshal(reader.stdout.Bytes(), &b); err != nil || b.Page != 16<<10 || b.Reads.Count != 1000 || b.Reads.Servers == 0 || b.Reads.P50 <= 0 || b.Reads.P99 < b.Reads.P50 {
		t.Errorf("%v, %+v", err, b)
	}
	stat := start(t, "memory", "stat", "--device", near, "--server", "here", "--server", "nobody", "--timeout", "2s", "--json")
	if c := stat.code(t); c == 0 {
		t.Error("a server that is not there was asked with success")
	}
	type counts struct {
		Fetches uint64 `json:"fetches"`
		Writes  uint64 `json:"writes"`
	}
	var s []struct {
		Error string `json:"error"`
		Lent  struct {
			Page     int   `json:"page_bytes"`
			Capacity int64 `json:"capacity_bytes"`
		} `json:"lent"`
		Counts counts `json:"counts"`
	}
	if err := json.Unmarshal(stat.stdout.Bytes(), &s); err != nil || len(s) != 2 || s[1].Error == "" || s[0].Error != "" || s[0].Lent.Page != 16<<10 ||
		s[0].Lent.Capacity != 8<<20 || s[0].Counts.Fetches < uint64(b.Reads.Servers) {
		t.Errorf("%v, %+v", err, s)
	}
	if err := server.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	server.succeed(t)
	var end struct {
		Counts counts `json:"counts"`
	}
	if err := json.Unmarshal(server.stdout.Bytes(), &end); err != nil || len(s) > 0 && end.Counts != s[0].Counts {
		t.Errorf("%v: the server counted %+v", err, end)
	}
}

// TestMemoryWithoutServer: who asks nobody is told what to do, in time.
func TestMemoryWithoutServer(t *testing.T) {
	needsProgram(t)
	_, near := udpPair(t, "")
	began := time.Now()
	p := start(t, "memory", "cooperate", "--device", near, "--reads", "1", "--timeout", "300ms")
	if c := p.code(t); c != 5 {
		t.Errorf("exit code %d", c)
	}
	if !strings.Contains(p.stderr.String(), "memory serve") || time.Since(began) > time.Minute {
		t.Errorf("after %v: %s", time.Since(began), &p.stderr)
	}
}
