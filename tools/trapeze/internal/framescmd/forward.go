package framescmd

import (
	"context"
	"fmt"
	"io"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// relayReport is the JSON output of forward.
type relayReport struct {
	totals
	// Dropped frames had no room in a send ring, or were too long for a port.
	Dropped uint64 `json:"dropped"`
}

// runForward passes frames between two ports.
func (x *commands) runForward(ctx context.Context, f *portFlags, _ []string) (err error) {
	if err := f.check(2, 2); err != nil {
		return err
	}
	f.promiscuous, f.poll = true, true
	s, err := x.open(ctx, f)
	if err != nil {
		return err
	}
	defer s.close(&err)
	r := &relay{pool: s.pool, ports: [2]ethernet.Port{s.ports[0], s.ports[1]}}
	x.Note("passing frames between two ports")
	var workers []func(context.Context) error
	for i := range f.Queues {
		workers = append(workers, func(ctx context.Context) error { return r.work(ctx, i) })
	}
	if err := s.run(ctx, workers); err != nil {
		return err
	}
	report := relayReport{Dropped: r.dropped.Load()}
	if report.totals, err = s.totals(); err != nil {
		return err
	}
	return x.Print(report, report.print)
}

func (r *relayReport) print(w io.Writer) error {
	r.totals.print(w)
	_, err := fmt.Fprintf(w, "dropped %d\n", r.Dropped)
	return err
}
