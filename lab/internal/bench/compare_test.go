package bench_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// peer finds a peer by name.
func peer(t *testing.T, name string) bench.Peer {
	t.Helper()
	for _, p := range bench.Peers() {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("no peer %s", name)
	return bench.Peer{}
}

// sameCore is one core for both processes, as a machine may have no more.
func sameCore() []int { return []int{bench.Cores()[0], bench.Cores()[0]} }

func samePair() []bench.Pair { return []bench.Pair{{Cores: sameCore()}} }

func TestPeers(t *testing.T) {
	install(t, "ucx_perftest", "fi_pingpong", "dpdk-testpmd", "mpirun", "NPopenmpi")
	for _, tt := range []struct {
		peer, test string
		want       bench.Answer
	}{
		{"ucx", "latency", bench.Answer{Value: 0.25, Tail: 3.5}},
		{"ucx", "put", bench.Answer{Value: 0.125, Tail: 3.5}},
		{"ucx", "get", bench.Answer{Value: 0.02, Tail: 3.5}},
		{"ucx", "bandwidth", bench.Answer{Value: 1000 * 1.048576}},
		{"ucx", "rate", bench.Answer{Value: 5e6}},
		{"libfabric", "latency", bench.Answer{Value: 0.5}},
		{"openmpi-ucx", bench.MPI, bench.Answer{Value: 0.75}},
		{"openmpi-sm", bench.MPI, bench.Answer{Value: 0.75}},
		{"testpmd", "frames", bench.Answer{Value: 3000}},
	} {
		p := peer(t, tt.peer)
		if err := p.Available(); err != nil {
			t.Fatal(err)
		}
		got, err := p.Ask(context.Background(), bench.Question{Test: tt.test, Bytes: 64, For: time.Millisecond, Cores: sameCore()})
		if err != nil {
			t.Errorf("%s %s: %v", tt.peer, tt.test, err)
			continue
		}
		if diff := got.Value - tt.want.Value; diff > 1e-9 || diff < -1e-9 || got.Tail != tt.want.Tail {
			t.Errorf("%s %s: got %+v, want %+v", tt.peer, tt.test, got, tt.want)
		}
	}
}

// TestTestpmdLeavesNothing: DPDK's own program leaves no files where it has its sockets.
func TestTestpmdLeavesNothing(t *testing.T) {
	testpmd := peer(t, "testpmd")
	if err := testpmd.Available(); err != nil || testing.Short() {
		t.Skip(err, "takes some seconds")
	}
	sockets := t.TempDir()
	t.Setenv("RUNTIME_DIRECTORY", sockets)
	got, err := testpmd.Ask(t.Context(), bench.Question{Test: "frames", Bytes: 64, For: time.Second, Cores: sameCore()})
	if err != nil || got.Value <= 0 {
		t.Fatal(got, err)
	}
	if left, err := os.ReadDir(sockets); err != nil || len(left) > 0 {
		t.Errorf("it has left %v, %v", left, err)
	}
}

func TestSocketPeers(t *testing.T) {
	for _, name := range []string{"unix", "tcp"} {
		p := peer(t, name)
		for _, test := range p.Tests {
			got, err := p.Ask(context.Background(), bench.Question{Test: test, Bytes: 64, For: 20 * time.Millisecond, Cores: sameCore()})
			if err != nil || got.Value <= 0 {
				t.Errorf("%s %s: %+v, %v", name, test, got, err)
			}
		}
	}
}

func TestMissingPeer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, p := range bench.Peers() {
		err := p.Available()
		if (p.Package != "") != errors.Is(err, bench.ErrNotInstalled) {
			t.Errorf("%s: %v", p.Name, err)
		}
		if err != nil && !strings.Contains(err.Error(), p.Package) {
			t.Errorf("%s: %q does not say what to install", p.Name, err)
		}
	}
}

// TestCompareMPI: ours is Open MPI too, which must be there, and a peer without its transport is left out.
func TestCompareMPI(t *testing.T) {
	install(t, "mpirun", "NPopenmpi")
	c := bench.Comparison{Rounds: 1, For: time.Millisecond, Pairs: samePair(), Rows: bench.MPIRows()[:1],
		Peers: []bench.Peer{peer(t, "openmpi-ucx"), peer(t, "openmpi-shm")}}
	rows, err := c.Compare(t.Context())
	if err != nil || len(rows) != 1 {
		t.Fatal(rows, err)
	}
	if r := rows[0]; r.RatioToBest == nil || *r.RatioToBest != 1 || !strings.Contains(r.Failures["openmpi-shm"], "mtl_ofi_provider_include shm") {
		t.Errorf("%+v", r)
	}
	t.Setenv("PATH", t.TempDir())
	if _, err := c.Compare(t.Context()); !errors.Is(err, bench.ErrNotInstalled) || !strings.Contains(err.Error(), "netpipe-openmpi") {
		t.Errorf("without Open MPI: %v", err)
	}
}

// TestMPIFails: what to try next can be pasted into a shell, and ours names the provider.
func TestMPIFails(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"mpirun", "NPopenmpi"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", folder+":"+os.Getenv("PATH"))
	q := bench.Question{Test: bench.MPI, Bytes: 64, For: time.Millisecond, Cores: sameCore()}
	tcp := peer(t, "openmpi-tcp")
	if _, err := tcp.Ask(t.Context(), q); err == nil || !strings.Contains(err.Error(), "mtl_ofi_provider_include 'tcp;ofi_rxm' --mca") {
		t.Errorf("a peer: %v", err)
	}
	c := bench.Comparison{Rounds: 1, For: time.Millisecond, Pairs: samePair(), Rows: bench.MPIRows()[:1]}
	if _, err := c.Compare(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "mpi, 64 bytes: trapeze: install our provider of libfabric, the package libfabric-trapeze") || !strings.Contains(err.Error(), "'trapeze;ofi_rxm'") {
		t.Errorf("ours: %v", err)
	}
}

func TestCompare(t *testing.T) {
	install(t, "ucx_perftest", "fi_pingpong", "dpdk-testpmd")
	steps := 0
	c := bench.Comparison{Wire: "udp", Rounds: 2, For: 20 * time.Millisecond, Pairs: samePair(),
		Peers: []bench.Peer{peer(t, "ucx"), peer(t, "libfabric"), peer(t, "testpmd")}, Progress: func() { steps++ },
		Rows: []bench.Row{{Test: "latency", Bytes: 64}, {Test: "rate", Bytes: 64}, {Test: "frames", Bytes: 64}, {Test: "put", Bytes: 64}, {Test: "get", Bytes: 4096}}}
	rows, err := c.Compare(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if steps != c.Steps() || steps != 22 {
		t.Errorf("%d steps were shown, %d announced", steps, c.Steps())
	}
	latency := rows[0]
	if latency.Best != "ucx" || latency.Peers["libfabric"] != 0.5 || latency.Better != "lower" || latency.Statistics["libfabric"] != "mean" {
		t.Errorf("%+v", latency)
	}
	if low, high := latency.OursSpread[0]/0.25, latency.OursSpread[1]/0.25; *latency.RatioToBest < low || *latency.RatioToBest > high {
		t.Errorf("ratio %v, ours was %v of ucx", *latency.RatioToBest, latency.OursSpread)
	}
	if latency.TailRatio == nil || latency.Tail["ucx"] != 3.5 {
		t.Errorf("p99.9: %v, %v", latency.Tail, latency.TailRatio)
	}
	if rate := rows[1]; rate.Better != "higher" || rate.Peers["ucx"] != 5e6 || rate.Ours <= 0 || slices.Contains(rate.OursSpread[:], 0) {
		t.Errorf("%+v", rate)
	}
	if frames := rows[2]; frames.Ours <= 0 || frames.Peers["testpmd"] != 3000 || frames.Unit != "frames/s" {
		t.Errorf("%+v", frames)
	}
	for i, ucx := range []float64{0.125, 0.02} {
		r := rows[3+i]
		if r.Unit != "us" || r.Better != "lower" || r.Best != "ucx" || r.Statistics["ucx"] != "p50" || r.Statistics[bench.Us] != "p50" {
			t.Errorf("%+v", r)
		}
		if low, high := r.OursSpread[0]/ucx, r.OursSpread[1]/ucx; r.Ours <= 0 || *r.RatioToBest < low || *r.RatioToBest > high || r.TailRatio == nil {
			t.Errorf("%s: ratio %v, ours was %v of ucx", r.Test, *r.RatioToBest, r.OursSpread)
		}
	}
}

func TestCompareWithFailingPeer(t *testing.T) {
	install(t, "ucx_perftest")
	t.Setenv("FAKE_UCX_FAILS", "1")
	c := bench.Comparison{Wire: "udp", Rounds: 2, For: 20 * time.Millisecond, Pairs: samePair(),
		Peers: []bench.Peer{peer(t, "ucx")}, Rows: []bench.Row{{Test: "latency", Bytes: 64}}}
	rows, err := c.Compare(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if r := rows[0]; r.RatioToBest != nil || r.Ours <= 0 || !strings.Contains(r.Failures["ucx"], "no transport") {
		t.Errorf("%+v", r)
	}
	c.Pairs[0].Cores = sameCore()[:1]
	if _, err := c.Compare(context.Background()); !errors.Is(err, bench.ErrSpec) {
		t.Errorf("with one core: %v", err)
	}
	c.Rounds = 0
	if err := c.Validate(); !errors.Is(err, bench.ErrSpec) {
		t.Errorf("without rounds: %v", err)
	}
}

func TestCompareStops(t *testing.T) {
	install(t, "ucx_perftest")
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := errors.New("stopped")
	c := bench.Comparison{Wire: "udp", Rounds: 100, For: 20 * time.Millisecond, Pairs: samePair(),
		Peers: []bench.Peer{peer(t, "ucx")}, Rows: []bench.Row{{Test: "latency", Bytes: 64}}, Progress: func() { cancel(stopped) }}
	rows, err := c.Compare(ctx)
	if !errors.Is(err, stopped) {
		t.Errorf("got %v", err)
	}
	if len(rows) != 1 || !rows[0].Incomplete || rows[0].Ours <= 0 {
		t.Errorf("what was measured before: %+v", rows)
	}
}
