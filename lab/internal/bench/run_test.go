package bench

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
)

// short is a measurement that takes little time.
func short(test Test, wire string, bytes int) Task {
	return NewTask(test, wire, bytes, 2*time.Millisecond, nil)
}

// check checks what a measurement has counted.
func check(t *testing.T, x *Task, s *Side) {
	t.Helper()
	if s.Messages == 0 || s.Bytes != uint64(x.Bytes)*s.Messages || s.Elapsed <= 0 || s.MessageRate() <= 0 || s.MBPerSecond() <= 0 {
		t.Errorf("%+v: %+v", x, s)
	}
	timed := x.Test != Bandwidth && x.Test != Frames
	if timed != (s.Latencies != nil) || timed && (s.Percentile(50) <= 0 || s.Percentile(99.9) < s.Percentile(50)) {
		t.Errorf("latencies of %s: %v", x.Test, s.Latencies)
	}
}

// TestRun: two processes measure over every kind of wire, and count where messages arrive.
func TestRun(t *testing.T) {
	if testing.Short() {
		t.Skip("starts some dozens of processes")
	}
	frames := short(Frames, "memif", 64)
	frames.For = 50 * time.Millisecond
	tasks := []Task{frames, short(Latency, "udp", 64), short(Put, "shm", 64), short(Get, "shm-write", 4096), short(Fetch, "shm-share", 8192),
		short(Latency, "unix", 64), short(Fetch, "unix", 4096), short(Bandwidth, "tcp", 64),
		short(Get, "vfio-user", 64), short(Put, "memory", 64)}
	many := short(Bandwidth, "udp", 64)
	many.VIs, many.Reliability, many.Garbage, many.Profiles, many.For = 5, "unreliable", 1e7, t.TempDir(), 20*time.Millisecond
	for _, x := range append(tasks, many) {
		t.Run(string(x.Test)+" "+x.Wire, func(t *testing.T) {
			r := must.Get(Run(t.Context(), x))(t)
			check(t, &x, r.Counted())
			if atEcho := x.Test == Frames || x.Reliability == "unreliable"; atEcho != (r.Counted() == &r.Echo) {
				t.Errorf("counted at the echo: %v", !atEcho)
			}
			if x.Garbage > 0 && r.Source.Mallocs == 0 {
				t.Error("nobody allocated anything")
			}
		})
	}
	// Both processes leave a profile, which is a compressed file.
	names, err := filepath.Glob(filepath.Join(many.Profiles, "*.pprof"))
	if err != nil || len(names) != 2 || !strings.Contains(names[0], "echo") || !strings.Contains(names[1], "source") {
		t.Fatalf("%q, %v", names, err)
	}
	for _, name := range names {
		f := must.Get(os.Open(name))(t)
		defer f.Close()
		if z, err := gzip.NewReader(f); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if b, err := io.ReadAll(z); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	many.Profiles = filepath.Join(many.Profiles, "gone")
	if _, err := Run(t.Context(), many); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("%v", err)
	}
	many.Profiles, many.Cores = "", []int{4000}
	many.Wire = "shm"
	if _, err := Run(t.Context(), many); err == nil || !strings.Contains(err.Error(), ErrCore.Error()) {
		t.Errorf("a core that is not there: %v", err)
	}
}

// both runs a part with both ends in this process.
func both(ctx context.Context, x Task) (Side, error) {
	p, err := x.path()
	if err != nil {
		return Side{}, err
	}
	defer p.remove()
	worker := part{Task: x, Role: Both, Address: p.source, Peer: p.echo, Core: -1, ready: func() {}}
	return worker.work(ctx)
}

// TestBoth: messages, writes and reads of all kinds of lengths, on VIs that take turns. A write
// that is not seen, or a read that does not bring the other end's bytes, ends the
// measurement with an error.
func TestBoth(t *testing.T) {
	for _, test := range messages {
		for _, bytes := range []int{1, 2, 3, 13, 4096, 70_000} {
			x := short(test, "memory", bytes)
			x.VIs = 3
			side := must.Get(both(t.Context(), x))(t)
			check(t, &x, &side)
		}
	}
	x := short(Put, "memory", 64)
	x.Reliability = "unreliable"
	must.Get(both(t.Context(), x))(t)
}

func TestRunEndsWithContext(t *testing.T) {
	stopped := errors.New("stopped")
	tasks := []Task{short(Latency, "memory", 64), short(Put, "memory", 64), short(Get, "memory", 64), short(Bandwidth, "memory", 64),
		short(Idle, "memory", 8), short(Idle, idleKernel, 8), short(Idle, idleRuntime, 8),
		short(Latency, "shm", 64), short(Frames, "memif", 64), short(Latency, "unix", 64), short(Idle, "shm", 8)}
	for _, x := range tasks {
		t.Run(string(x.Test)+" "+x.Wire, func(t *testing.T) {
			t.Parallel()
			if testing.Short() && x.Wire != "memory" {
				t.Skip("starts processes")
			}
			x.For = time.Hour
			if x.Test == Idle {
				x.For, x.Pause = 10*time.Minute, time.Second
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(100*time.Millisecond, func() { cancel(stopped) })
			should.Refuse(Run(ctx, x))(t, stopped)
		})
	}
}

// TestIdle: an end that sleeps gets all that comes, and is idle before. A pause for which a NIC that does not run is
// taken for dead is left to the soak.
func TestIdle(t *testing.T) {
	for _, place := range IdlePlaces {
		x := must.Get(IdleTask(place, 20*time.Millisecond, 2*time.Millisecond, nil))(t)
		if soak.Wanted() && place == "shm-inline" {
			x.For = 10 * time.Second
		}
		t.Run(place, func(t *testing.T) {
			t.Parallel() // most of the time they sleep
			r := must.Get(Run(t.Context(), x))(t)
			s := r.Counted()
			if s.Messages != uint64(x.count()) || s.Latencies.TotalCount() != int64(x.count()) || s.Latencies.Min() < 1 || s.Quiet < x.For/2 || s.Elapsed <= 0 || s.QuietCPU < 0 || s.CPU < 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// TestWorkerRefuses what is no part of a measurement.
func TestWorkerRefuses(t *testing.T) {
	for _, nonsense := range []string{"", "{", "[]", "{}"} {
		should.Fail(t, RunWorker(t.Context(), strings.NewReader(nonsense), io.Discard), ErrSpec, "%q", nonsense)
	}
}

// TestVeth: a stream of ours crosses two interfaces, and socat's, if it is here; the
// program is in the network where it was.
func TestVeth(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("starts processes, and takes root")
	}
	home := must.Get(netns.Get())(t)
	defer home.Close()
	c := Comparison{Wire: "shm", Placement: "default", Rounds: 1, For: 10 * time.Millisecond, Pairs: samePair(), Tests: []string{veth, vethLong}}
	if p := peer(t, "socat"); p.Available() == nil {
		c.Peers = append(c.Peers, p.Name)
	}
	rows, err := c.Compare(t.Context(), func() {})
	if errors.Is(err, unix.EPERM) || err != nil && strings.Contains(err.Error(), "not supported") {
		t.Skip(err)
	}
	if err != nil || len(rows) != 2+2*len(c.Peers) {
		t.Fatal(rows, err)
	}
	for _, r := range rows {
		if r.Unit != "MB/s" || r.Value == nil || *r.Value <= 0 || r.Failure != "" {
			t.Errorf("%+v", r)
		}
	}
	if now, err := netns.Get(); err != nil || !now.Equal(home) {
		t.Errorf("the program is in another network namespace: %v", err)
	} else {
		_ = now.Close()
	}
}

// TestVethWithoutRoot: a thread without rights gets an error that says what it takes.
func TestVethWithoutRoot(t *testing.T) {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread has lost its rights, and ends with this goroutine
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			ended <- err
			return
		}
		_, err := Run(context.Background(), short(Latency, veth, 64))
		ended <- err
	}()
	if err := <-ended; !errors.Is(err, unix.EPERM) || !strings.HasSuffix(err.Error(), "takes root: operation not permitted") {
		t.Errorf("%v", err)
	}
}
