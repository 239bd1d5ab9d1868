package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
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

// Peers returns those that we know, the fastest kind first.
func Peers() []Peer {
	return []Peer{ucx, libfabric, testpmd, unixSocket, tcpLoopback, socat,
		mpiPeer("openmpi-ucx"), mpiPeer("openmpi-shm"), mpiPeer("openmpi-tcp"), mpiPeer("openmpi-sm")}
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

// pinned is a command line that runs on one core.
func pinned(core int, command ...string) (string, []string) {
	return "taskset", append([]string{"-c", strconv.Itoa(core)}, command...)
}

// startPinned starts a peer's program on one core with more environment.
func startPinned(ctx context.Context, core int, env []string, command ...string) (*process, error) {
	name, args := pinned(core, command...)
	return start(ctx, nil, "env", append(append(env, name), args...)...)
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

// numbers returns the numbers with which the last line of text begins that has at
// least n of them, between separators.
func numbers(text, separators string, n int) ([]float64, error) {
	var found []float64
	for line := range strings.Lines(text) {
		parts := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(separators+"\n\r", r) })
		if len(parts) < n {
			continue
		}
		values := make([]float64, 0, len(parts))
		for _, p := range parts {
			v, err := strconv.ParseFloat(p, 64)
			if err != nil {
				break
			}
			values = append(values, v)
		}
		if len(values) >= n {
			found = values
		}
	}
	if found == nil {
		return nil, fmt.Errorf("its output has no line with %d numbers", n)
	}
	return found, nil
}
