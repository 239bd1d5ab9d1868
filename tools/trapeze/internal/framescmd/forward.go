package framescmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/bridge"
)

// relayReport is the JSON output of forward and bridge.
type relayReport struct {
	totals
	// Dropped frames had no room in a send ring, or were too long for a port.
	Dropped uint64         `json:"dropped"`
	Bridge  *bridge.Counts `json:"bridge,omitempty" help:"of bridge"`
}

// runForward passes frames between two ports.
func (x *commands) runForward(ctx context.Context, f *portFlags, _ []string) error {
	if err := f.check(2, 2); err != nil {
		return err
	}
	return x.relay(ctx, f, newForwarder, nil)
}

// newForwarder sends all to the other of two ports.
func newForwarder() router {
	return func(port int, frames []ethernet.Frame, out []outbox, _ *ethernet.Cache) {
		out[1-port].frames = append(out[1-port].frames, frames...)
	}
}

// maxPorts of a bridge.
const maxPorts = 16

// maxStations that a bridge remembers.
const maxStations = 8192

// runBridge passes frames where a table says.
func (x *commands) runBridge(ctx context.Context, f *portFlags, _ []string) error {
	if err := f.check(2, maxPorts); err != nil {
		return err
	}
	return x.relay(ctx, f, nil, bridge.NewTable(maxStations, bridge.DefaultAge))
}

// relay runs forward, or bridge with a table.
func (x *commands) relay(ctx context.Context, f *portFlags, newRouter func() router, table *bridge.Table) (err error) {
	f.promiscuous, f.poll = true, true
	s, err := x.open(ctx, f)
	if err != nil {
		return err
	}
	defer s.close(&err)
	r := &relay{pool: s.pool, newRouter: newRouter}
	for _, p := range s.ports {
		r.ports = append(r.ports, p)
	}
	if table != nil {
		start := time.Now()
		r.newRouter = func() router { return newBridge(s.pool, table, start, r) }
	}
	x.Note("passing frames between %d ports", len(s.ports))
	var workers []func(context.Context) error
	for i := range f.Queues {
		workers = append(workers, func(ctx context.Context) error { return r.work(ctx, i) })
	}
	if err := s.run(ctx, workers); err != nil {
		return err
	}
	report := relayReport{Dropped: r.dropped.Load()}
	if table != nil {
		report.Bridge = new(table.Counts())
	}
	if report.totals, err = s.totals(); err != nil {
		return err
	}
	return x.Print(report, report.print)
}

func (r *relayReport) print(w io.Writer) error {
	r.totals.print(w)
	_, err := fmt.Fprintf(w, "dropped %d\n", r.Dropped)
	if b := r.Bridge; b != nil {
		_, err = fmt.Fprintf(w, "%d stations, %d moved; refused: %d bad sources, %d reserved, %d local, %d loops; %d without room in the table\n",
			b.Stations, b.Moved, b.BadSources, b.Reserved, b.Local, b.Loops, b.Full)
	}
	return err
}

// newBridge routes by a table.
func newBridge(pool *ethernet.Pool, table *bridge.Table, start time.Time, r *relay) router {
	views, to := make([][]byte, burst), make([]int, burst)
	return func(port int, frames []ethernet.Frame, out []outbox, cache *ethernet.Cache) {
		for i, f := range frames {
			views[i] = pool.Bytes(f)
		}
		table.Ports(port, time.Since(start), views[:len(frames)], to)
		for i, f := range frames {
			switch to[i] {
			case bridge.Refused:
				cache.Give(f.Buffer)
			case bridge.Flood:
				flood(f, port, out, cache, r)
			default:
				out[to[i]].frames = append(out[to[i]].frames, f)
			}
		}
	}
}

// flood sends a frame to all ports but its own: the frame itself to the last of them,
// copies to the others.
func flood(f ethernet.Frame, port int, out []outbox, cache *ethernet.Cache, r *relay) {
	last := len(out) - 1
	if last == port {
		last--
	}
	for p := range out[:last] {
		if p == port {
			continue
		}
		var one [1]ethernet.Frame
		if cache.Alloc(one[:]) == 0 {
			r.dropped.Add(1)
			continue
		}
		one[0].Length = f.Length
		copy(r.pool.Bytes(one[0]), r.pool.Bytes(f))
		out[p].frames = append(out[p].frames, one[0])
	}
	out[last].frames = append(out[last].frames, f)
}
