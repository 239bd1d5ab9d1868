package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/internal/option"
)

// peer finds a peer by name.
func peer(t *testing.T, name string) Peer {
	t.Helper()
	i := slices.Index(PeerNames(), name)
	if i < 0 {
		t.Fatalf("no peer %s", name)
	}
	return Peers()[i]
}

// samePair is one core for both processes, as a machine may have no more: then no round is left out, either.
func samePair() []Pair { return []Pair{{Cores: []int{Cores()[0], Cores()[0]}}} }

// ask asks one question once.
func ask(t *testing.T, p Peer, test string, bytes int) (Answer, error) {
	t.Helper()
	c := &Comparison{Wire: "shm", Tests: []string{test}, Sizes: []option.Bytes{option.Bytes(bytes)}, For: time.Millisecond, Rounds: 1, Placement: "default", Pairs: samePair(), Peers: []string{p.Name}}
	q := c.all()[0]
	must.Be(t, len(q.who), 2, "%s is not asked for %s", p.Name, test)
	return p.ask(t.Context(), q)
}

func TestPeers(t *testing.T) {
	install(t, "ucx_perftest", "fi_pingpong", "dpdk-testpmd", "mpirun", "NPopenmpi")
	for _, tt := range []struct {
		peer, test string
		want       Answer
	}{
		{"ucx", "latency", Answer{Value: 0.25, Tail: 3.5}},
		{"ucx", "put", Answer{Value: 0.125, Tail: 3.5}},
		{"ucx", "fetch", Answer{Value: 0.02, Tail: 3.5}},
		{"ucx", "bandwidth", Answer{Value: 1000 * 1.048576}},
		{"ucx", "rate", Answer{Value: 5e6}},
		{"libfabric", "latency", Answer{Value: 0.5}},
		{"openmpi-ucx", MPI, Answer{Value: 0.75}},
		{"testpmd", "frames", Answer{Value: 2500}},
	} {
		p := peer(t, tt.peer)
		must.OK(t, p.Available())
		got, err := ask(t, p, tt.test, 4096)
		if diff := got.Value - tt.want.Value; err != nil || diff > 1e-9 || diff < -1e-9 || got.Tail != tt.want.Tail {
			t.Errorf("%s %s: got %+v, want %+v; %v", tt.peer, tt.test, got, tt.want, err)
		}
	}
}

// TestTestpmdLeavesNothing: DPDK's own program leaves no files where it has its sockets.
func TestTestpmdLeavesNothing(t *testing.T) {
	testpmd := peer(t, "testpmd")
	if err := testpmd.Available(); err != nil || !soak.Wanted() {
		t.Skip(err, "takes some seconds: .ci/run soak has it")
	}
	sockets := t.TempDir()
	t.Setenv("RUNTIME_DIRECTORY", sockets)
	if got, err := ask(t, testpmd, "frames", 64); err != nil || got.Value <= 0 {
		t.Fatal(got, err)
	}
	if left, err := os.ReadDir(sockets); err != nil || len(left) > 0 {
		t.Errorf("it has left %v, %v", left, err)
	}
}

func TestMissingPeer(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	for _, p := range Peers() {
		err := p.Available()
		if (p.Package != "") != errors.Is(err, ErrNotInstalled) || err != nil && !strings.Contains(err.Error(), p.Package) {
			t.Errorf("%s: %v", p.Name, err)
		}
	}
}

// TestMPI: ours is Open MPI too, which must be there, and a peer without its transport is left out. What to try
// next can be pasted into a shell, and ours names the provider.
func TestMPI(t *testing.T) {
	install(t, "mpirun", "NPopenmpi")
	c := Comparison{Wire: "shm", Placement: "default", Rounds: 1, For: time.Millisecond, Pairs: samePair(), Tests: []string{MPI}, Sizes: []option.Bytes{64},
		Peers: []string{"openmpi-ucx", "openmpi-shm"}}
	rows, err := c.Compare(t.Context(), func() {})
	if err != nil || len(rows) != 3 {
		t.Fatal(rows, err)
	}
	if *rows[1].Ratio != 1 || !strings.Contains(rows[2].Failure, "mtl_ofi_provider_include shm") {
		t.Errorf("%+v", rows)
	}
	folder := t.TempDir()
	t.Setenv("PATH", folder)
	if _, err := c.Compare(t.Context(), func() {}); !errors.Is(err, ErrNotInstalled) || !strings.Contains(err.Error(), "netpipe-openmpi") {
		t.Errorf("without Open MPI: %v", err)
	}
	for _, name := range []string{"mpirun", "NPopenmpi"} {
		must.OK(t, os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\nexit 1\n"), 0o700))
	}
	t.Setenv("PATH", folder+":/usr/bin:/bin")
	if _, err := ask(t, peer(t, "openmpi-tcp"), MPI, 64); err == nil || !strings.Contains(err.Error(), "mtl_ofi_provider_include 'tcp;ofi_rxm' NPopenmpi") {
		t.Errorf("a peer: %v", err)
	}
	const install = "mpi, 64 bytes: install our provider of libfabric, the package libfabric-trapeze"
	if _, err := c.Compare(t.Context(), func() {}); err == nil || !strings.HasPrefix(err.Error(), install) || !strings.Contains(err.Error(), "'trapeze;ofi_rxm'") {
		t.Errorf("ours: %v", err)
	}
}

// TestCompare: all are asked in turn, over every kind of way, and ratios are of the rounds.
func TestCompare(t *testing.T) {
	install(t, "ucx_perftest", "fi_pingpong", "dpdk-testpmd")
	steps := 0
	c := Comparison{Wire: "shm-write", Placement: "default", Rounds: 2, For: 2 * time.Millisecond, Pairs: samePair(),
		Tests: []string{"latency", "rate", "get"}, Sizes: []option.Bytes{4096},
		Peers: []string{"ucx", "libfabric", "testpmd", "unix"}}
	rows := must.Get(c.Compare(t.Context(), func() { steps++ }))(t)
	if steps != c.Steps() || steps != 2*(4+2+3) {
		t.Errorf("%d steps were shown, %d announced", steps, c.Steps())
	}
	var got []string
	var ours Row
	for _, r := range rows {
		got = append(got, r.Test+" "+r.Who+" "+r.Statistic)
		if r.Value == nil || *r.Value <= 0 || r.Failure != "" || (r.Who == Us) != (r.Ratio == nil) || r.Rounds != 2 || (r.Unit == "us") != (r.Statistic != "") {
			t.Errorf("%+v", r)
			continue
		}
		if r.Who == Us {
			ours = r
		} else if r.Who == "ucx" && (*r.Ratio < ours.Spread[0] / *r.Value || *r.Ratio > ours.Spread[1] / *r.Value) {
			t.Errorf("%s: ratio %v, ours was %v of %v", r.Test, *r.Ratio, ours.Spread, *r.Value)
		}
	}
	if want := []string{"latency trapeze p50", "latency ucx p50", "latency libfabric mean", "latency unix p50", "get trapeze p50", "get ucx p50",
		"rate trapeze ", "rate ucx ", "rate unix "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestCompareEnds: a peer that fails is told of, and a comparison that is stopped has what was measured before.
func TestCompareEnds(t *testing.T) {
	install(t, "ucx_perftest")
	t.Setenv("FAKE_UCX_FAILS", "1")
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped, steps := errors.New("stopped"), 0
	c := Comparison{Wire: "shm", Placement: "default", Rounds: 100, For: time.Millisecond, Pairs: samePair(), Peers: []string{"ucx"},
		Tests: []string{"latency"}, Sizes: []option.Bytes{64}}
	rows, err := c.Compare(ctx, func() {
		if steps++; steps == 2 {
			cancel(stopped)
		}
	})
	if !errors.Is(err, stopped) || len(rows) != 2 || !rows[0].Incomplete || *rows[0].Value <= 0 || rows[0].Rounds != 1 {
		t.Fatalf("%+v, %v", rows, err)
	}
	if r := rows[1]; r.Ratio != nil || r.Value != nil || !strings.Contains(r.Failure, "no transport") {
		t.Errorf("%+v", r)
	}
}
