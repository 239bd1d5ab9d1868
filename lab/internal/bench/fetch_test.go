package bench_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

// TestCompareFetch: a page comes from another process, and beside it ucp_get's and what
// sockets take for a request and a reply.
func TestCompareFetch(t *testing.T) {
	install(t, "ucx_perftest")
	// Two processes that poll on one core wait for each other's time slices.
	pairs := bench.Pairs()
	if len(pairs) == 0 {
		pairs = samePair()
	}
	c := bench.Comparison{Wire: bench.UsualWire, Rounds: 1, For: 30 * time.Millisecond, Pairs: pairs[:1],
		Peers: []bench.Peer{peer(t, "ucx"), peer(t, "tcp"), peer(t, "unix")}, Rows: []bench.Row{{Test: "fetch", Bytes: 8192}}}
	rows, err := c.Compare(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	r := rows[0]
	if r.Unit != "us" || r.Better != "lower" || r.Ours <= 0 || r.Peers["ucx"] != 0.02 || r.Peers["tcp"] <= 0 || r.Peers["unix"] <= 0 || len(r.Failures) > 0 {
		t.Errorf("%+v", r)
	}
}

// TestCompareFetchRefuses what there is no such measurement for.
func TestCompareFetchRefuses(t *testing.T) {
	for _, c := range []bench.Comparison{
		{Wire: "memory", Rows: []bench.Row{{Test: "fetch", Bytes: 4096}}},
		{Wire: "veth", Rows: []bench.Row{{Test: "fetch", Bytes: 4096}}},
		{Wire: "nowhere", Rows: []bench.Row{{Test: "fetch", Bytes: 4096}}},
		{Wire: "shm", Rows: []bench.Row{{Test: "fetch", Bytes: 64}}},
		{Wire: "shm", Rows: []bench.Row{{Test: "fetch", Bytes: 5000}}},
		{Wire: "shm", Rows: []bench.Row{{Test: "fetch", Bytes: 1 << 20}}},
	} {
		c.Rounds = 1
		if err := c.Validate(); !errors.Is(err, bench.ErrSpec) {
			t.Errorf("%s, %d bytes: %v", c.Wire, c.Rows[0].Bytes, err)
		}
	}
}
