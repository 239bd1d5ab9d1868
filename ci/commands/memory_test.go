package commands_test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMemoryDemo sorts in other memory and in a file, and finds both sorted.
func TestMemoryDemo(t *testing.T) {
	needsProgram(t)
	p := start(t, "memory", "demo", "--size", "32M", "--memory", "8M", "--json")
	p.succeed(t)
	var r struct {
		Bytes   int64 `json:"bytes"`
		Records int64 `json:"records"`
		Network struct {
			Sorted bool    `json:"sorted"`
			Rate   float64 `json:"mb_per_s"`
		} `json:"network"`
		File struct {
			Sorted bool `json:"sorted"`
		} `json:"file"`
		Cache struct {
			Bytes       int64   `json:"cache_bytes"`
			Misses      uint64  `json:"misses"`
			Fetches     uint64  `json:"fetches"`
			WrittenBack uint64  `json:"written_back"`
			P50         float64 `json:"miss_p50_us"`
		} `json:"cache"`
	}
	if err := json.Unmarshal(p.stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, &p.stdout)
	}
	if r.Bytes != 32<<20 || r.Records != 32<<20/64 || !r.Network.Sorted || !r.File.Sorted || r.Network.Rate <= 0 {
		t.Errorf("report: %+v", r)
	}
	// All of it has been in the other memory, and come from there, three times.
	pages := uint64(r.Bytes >> 16)
	if r.Cache.Bytes != 2<<20 || r.Cache.Fetches < 2*pages || r.Cache.WrittenBack < 2*pages || r.Cache.Misses == 0 || r.Cache.P50 <= 0 {
		t.Errorf("cache: %+v", r.Cache)
	}
}

// TestMemoryBetweenProcesses lends memory in one process, and uses and asks it from others.
func TestMemoryBetweenProcesses(t *testing.T) {
	needsProgram(t)
	far, near := udpPair(t, "")
	server := start(t, "memory", "serve", "--device", far, "--size", "8M", "--page", "16K", "--name", "here", "--json")
	bench := start(t, "memory", "bench", "--device", near, "--server", "here", "--write", "--duration", "200ms", "--timeout", "20s", "--json")
	bench.succeed(t)
	var b struct {
		Page    int     `json:"page_bytes"`
		Fetches int64   `json:"fetches"`
		P50     float64 `json:"p50_us"`
		P99     float64 `json:"p99_us"`
		Read    struct {
			Bytes int64 `json:"bytes"`
		} `json:"read"`
	}
	if err := json.Unmarshal(bench.stdout.Bytes(), &b); err != nil || b.Page != 16<<10 || b.Fetches == 0 || b.P50 <= 0 || b.P99 < b.P50 || b.Read.Bytes == 0 {
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
		s[0].Lent.Capacity != 8<<20 || s[0].Counts.Fetches < uint64(b.Fetches) || s[0].Counts.Writes == 0 {
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
	p := start(t, "memory", "bench", "--device", near, "--timeout", "300ms")
	if c := p.code(t); c != 5 {
		t.Errorf("exit code %d", c)
	}
	if !strings.Contains(p.stderr.String(), "memory serve") || time.Since(began) > time.Minute {
		t.Errorf("after %v: %s", time.Since(began), &p.stderr)
	}
}
