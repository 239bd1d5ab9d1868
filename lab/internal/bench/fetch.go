package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/trapeze-nic/trapeze/lab/internal/ticks"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// fetch is the test of Compare in which a page comes from another process's memory: a
// request, and a reply with the page.
const fetch = "fetch"

// fetchSide is one end of a measurement of fetches: a server of pages, or a client that
// fetches one after the other.
type fetchSide struct {
	Device string
	Serve  bool
	Bytes  int // of a page
	For    time.Duration
	Core   int
}

// fetched holds what the server lends, in bytes: more than the caches next to a core hold.
const fetched = 4 << 20

// askFetch measures fetches between two processes of ours.
func askFetch(ctx context.Context, t Task, q Question) (a Answer, err error) {
	if err := checkFetch(t, q); err != nil {
		return a, err
	}
	t.Cores = q.Cores
	p, err := wires[t.Wire](&t)
	if err != nil {
		return a, err
	}
	defer p.remove()
	server, err := startReady(ctx, job{Fetch: &fetchSide{Device: p.echo, Serve: true, Bytes: q.Bytes, Core: t.core(0)}}, "server of pages")
	if err != nil {
		return a, err
	}
	defer server.stop()
	client, err := startWorker(ctx, job{Fetch: &fetchSide{Device: p.source, Bytes: q.Bytes, For: q.For, Core: t.core(1)}})
	if err != nil {
		return a, err
	}
	return result[Answer](client)
}

// checkFetch refuses what there is no measurement of fetches for.
func checkFetch(t Task, q Question) error {
	switch {
	case wires[t.Wire] == nil || t.Wire == "memory" || t.Wire == "vfio-user" || vethMTU[t.Wire] != 0:
		return fmt.Errorf("%w: fetches over wire %q (shm, shm-share, memif, udp)", ErrSpec, t.Wire)
	case q.Bytes < netmem.MinPage || q.Bytes > netmem.MaxPage || q.Bytes&(q.Bytes-1) != 0:
		return fmt.Errorf("%w: pages of %d bytes (powers of two from %d to %d)", ErrSpec, q.Bytes, netmem.MinPage, netmem.MaxPage)
	}
	return nil
}

// awake has waits look again and again for longer than a fetch takes, as the peers' do.
var awake = via.Options{Waiting: via.Waiting{Spin: 10 * time.Millisecond}}

func (f *fetchSide) run(ctx context.Context, w io.Writer) error {
	if err := pinProcess(f.Core); err != nil {
		return err
	}
	nic, err := via.Open(ctx, f.Device, awake)
	if err != nil {
		return err
	}
	use := f.measure
	if f.Serve {
		use = f.serve
	}
	return errors.Join(use(ctx, nic, w), nic.Close())
}

// serve lends memory until it is told to end.
func (f *fetchSide) serve(ctx context.Context, nic *via.NIC, w io.Writer) error {
	s, err := netmem.NewServer(ctx, nic, netmem.ServerOptions{Page: f.Bytes, Size: fetched})
	if err != nil {
		return err
	}
	fmt.Fprintln(w, readyLine)
	select {
	case <-ctx.Done():
	case <-s.Done():
	}
	return errors.Join(s.Err(), s.Close())
}

// measure writes all pages, and then times fetches of one after the other, past the cache.
func (f *fetchSide) measure(ctx context.Context, nic *via.NIC, w io.Writer) (err error) {
	c, err := netmem.Open(ctx, nic, []string{"ff:ff:ff:ff:ff:ff/" + netmem.DefaultName}, netmem.Options{Cache: 1 << 20, ReadAhead: -1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if _, err := c.WriteAt(make([]byte, fetched), 0); err != nil {
		return err
	}
	if err := c.Sync(); err != nil {
		return err
	}
	m, err := nic.Alloc(ctx, f.Bytes, via.MemoryAttributes{})
	if err != nil {
		return err
	}
	frame, pages := ring.Frame{Memory: m, Length: f.Bytes}, uint64(fetched/f.Bytes)
	h := newHistogram()
	rate := ticks.Rate(calibration)
	last := ticks.Now() // as for other latencies, see pingPong
	budget := uint64(float64(f.For) * rate)
	warm := last + budget/10
	end := warm + budget
	for page := uint64(0); last < end || h.TotalCount() == 0; page = (page + 1) % pages {
		if _, err := c.Fetch(context.Background(), page, frame); err != nil {
			return err
		}
		now := ticks.Now()
		if last > warm {
			// Within the range, so that there can be no error.
			_ = h.RecordValue(int64(min(max(float64(now-last)/rate, 1), float64(longest))))
		}
		if last = now; page == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return json.NewEncoder(w).Encode(Answer{Value: float64(h.ValueAtPercentile(50)) / 1e3, Tail: float64(h.ValueAtPercentile(99.9)) / 1e3})
}
