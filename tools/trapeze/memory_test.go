package trapeze_test

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

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
			Count   int64 `json:"count"`
			Servers int64 `json:"from_servers"`
		} `json:"reads"`
		Counts struct{ Median, P99 time.Duration }
	}
	if err := json.Unmarshal(reader.stdout.Bytes(), &b); err != nil || b.Page != 16<<10 || b.Reads.Count != 1000 || b.Reads.Servers == 0 || b.Counts.Median <= 0 || b.Counts.P99 < b.Counts.Median {
		t.Errorf("%v, %+v", err, b)
	}
	stat := start(t, "memory", "stat", "--device", near, "--server", "here", "--server", "nobody", "--timeout", "2s", "--json")
	c := stat.code(t)
	should.Hold(t, c != 0, "a server that is not there was asked with success")
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
	must.OK(t, server.Process.Signal(syscall.SIGINT))
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
	should.Be(t, p.code(t), 5, "exit code")
	should.Hold(t, strings.Contains(p.stderr.String(), "memory serve") && time.Since(began) <= time.Minute, "after %v: %s", time.Since(began), &p.stderr)
}
