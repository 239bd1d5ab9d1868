package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// ErrNotInstalled: a peer's program is not on this machine.
var ErrNotInstalled = errors.New("not installed")

// Question is the same for all in one row of a comparison.
type Question struct {
	// Test is "latency", "put", "get", "fetch", "bandwidth", "rate", "frames", "mpi", "veth", "veth-9000" or "veth-65535".
	Test  string
	Bytes int
	For   time.Duration
	Cores []int // two, for the two processes
}

// Answer is one peer's figure: microseconds one way, or there and back of a read, MB/s, or messages or frames a
// second. Tail is the p99.9 latency, 0 where the peer tells none.
type Answer struct {
	Value, Tail float64
	switches    float64 // a second, of our processes
}

// Peer is something that we are compared with.
type Peer struct {
	Name string
	// Package of Debian that has it, "" for what Go brings along.
	Package string
	// Statistic says what its latencies are: p50, or mean where it tells no more.
	Statistic string
	// Program that must be there.
	Program string
	// Tests that it can do.
	Tests []string
	ask   func(context.Context, Question) (Answer, error)
}

// Available says whether the peer can be run here: nil, or an error that wraps
// ErrNotInstalled and says which package to install.
func (p *Peer) Available() error {
	if p.Program == "" {
		return nil
	}
	if _, err := exec.LookPath(p.Program); err != nil {
		return fmt.Errorf("%s: %w: %s is missing (on Debian: apt-get install %s)", p.Name, ErrNotInstalled, p.Program, p.Package)
	}
	return nil
}

// Ask measures the peer.
func (p *Peer) Ask(ctx context.Context, q Question) (Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, starting+10*q.For, fmt.Errorf("%s: no result in time", p.Name))
	defer cancel()
	a, err := p.ask(ctx, q)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return a, fmt.Errorf("%s: %w", p.Name, err)
	}
	return a, nil
}

// awaitListener waits until a TCP port has a listener, in the network of a process.
func awaitListener(ctx context.Context, p *process, port int) error {
	for !listening(p.cmd.Process.Pid, port) {
		if err := sleep(ctx, lookPause); err != nil {
			return err
		}
	}
	return nil
}

// listening looks the port up in /proc/PID/net/tcp, as a connection would be taken for
// a client (proc_pid_net(5): local address, then state 0A).
func listening(pid, port int) bool {
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue
		}
		found := false
		for lines := bufio.NewScanner(f); lines.Scan() && !found; {
			fields := strings.Fields(lines.Text())
			found = len(fields) > 3 && fields[3] == "0A" && strings.HasSuffix(fields[1], fmt.Sprintf(":%04X", port))
		}
		_ = f.Close()
		if found {
			return true
		}
	}
	return false
}
