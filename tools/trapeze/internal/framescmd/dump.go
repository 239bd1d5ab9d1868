package framescmd

import (
	"bufio"
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/capture"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/match"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/numbered"
)

// dumpReport is the JSON output of dump.
type dumpReport struct {
	totals
	Matched uint64       `json:"matched" help:"frames that have the fields of --match"`
	Output  string       `json:"output,omitempty"`
	Check   *checkReport `json:"check,omitempty" help:"with --check"`
}

// checkReport counts numbered frames by their fate.
type checkReport struct {
	numbered.Totals
	// Explained are lost frames of which a counter of this port says where they went.
	Explained uint64 `json:"explained"`
	// Unexplained ones did not get here, as far as this port knows: the sender's counters
	// tell more.
	Unexplained uint64 `json:"unexplained"`
}

type dumpFlags struct {
	portFlags
	pollFlag
	Promiscuous bool           `flag:"promiscuous" help:"frames for other stations too"`
	Match       []string       `flag:"match" split:"comma" help:"only frames that have these fields, such as proto=udp,port=53"`
	Output      capture.Output `override:"output" help:"file to write frames to instead of showing them; - is stdout"`
	Count       uint64         `flag:"count" help:"end after so many frames (default when interrupted)"`
	Check       bool           `flag:"check" help:"check the numbers of frames that 'trapeze frames gen' has sent"`
}

func (x *commands) runDump(ctx context.Context, f *dumpFlags, _ []string) (err error) {
	if err := f.check(1); err != nil {
		return err
	}
	if err := f.Output.Check(x.JSON); err != nil {
		return err
	}
	if _, err := match.Parse(f.Match); err != nil {
		return err
	}
	f.poll, f.promiscuous = f.Poll, f.Promiscuous
	s, err := x.open(ctx, &f.portFlags)
	if err != nil {
		return err
	}
	defer s.close(&err)
	d := &dump{flags: f, pool: s.pool}
	done, err := x.openDump(d)
	if err != nil {
		return err
	}
	port := s.ports[0]
	x.Note("looking at frames of %s", f.Devices[0])
	var workers []func(context.Context) error
	for i := range port.Info().Options.Queues {
		m, err := match.Parse(f.Match) // each goroutine has its own
		if err != nil {
			return err
		}
		workers = append(workers, func(ctx context.Context) error { return d.work(ctx, port.Queue(i), m) })
	}
	err = s.run(ctx, workers, 1)
	if d.written != nil {
		err = nil // done says it
	}
	if err := errors.Join(err, done()); err != nil {
		return err
	}
	r := dumpReport{Matched: d.matched, Output: f.Output.Path}
	if r.totals, err = s.totals(); err != nil {
		return err
	}
	if d.checker != nil {
		r.Check = explain(d.checker.Totals(), &r.Ports[0])
	}
	return x.ReportBeside(f.Output.Path, r)
}

// explain finds out how many of the frames that were lost this port has counted.
func explain(t numbered.Totals, p *portReport) *checkReport {
	known := t.Damaged
	for _, c := range []string{"device_missed", "device_receive_errors", "receive_errors", "bad_lengths", "unended"} {
		known += p.Counters[c]
	}
	known = min(known, t.Lost)
	return &checkReport{t, known, t.Lost - known}
}

// dump is where the frames of all queues go.
type dump struct {
	flags *dumpFlags
	pool  *ethernet.Pool

	mu      sync.Mutex // guards what follows
	matched uint64
	file    *capture.File     // nil without --output
	written error             // the first error of writing
	lines   *bufio.Writer     // nil if no lines are shown
	checker *numbered.Checker // nil without --check
	last    time.Time         // when a frame came
}

// openDump opens what frames are written to; done ends that. The file is kept if it could
// be written, whatever happened to the port.
func (x *commands) openDump(d *dump) (done func() error, err error) {
	f := d.flags
	if f.Check {
		d.checker = numbered.NewChecker()
	}
	switch {
	case f.Output.Path == "" && (x.JSON || f.Check):
		return func() error { return nil }, nil
	case f.Output.Path == "":
		d.lines = bufio.NewWriterSize(x.Stdout, 1<<16)
		return d.lines.Flush, nil
	}
	if d.file, err = f.Output.Create(x.Bytes, f.Devices[0], strings.Join(f.Match, ",")); err != nil {
		return nil, err
	}
	return func() error { return d.file.Finish(d.written) }, nil
}

// checkTimeout is the time for which frames may come behind the end of their stream.
const checkTimeout = time.Second

// work takes what comes into a queue until ctx ends or there is no need for more.
func (d *dump) work(ctx context.Context, q ethernet.Queue, m *match.Frames) error {
	frames := make([]ethernet.Frame, burst)
	for ctx.Err() == nil {
		n, err := q.Receive(frames)
		if err != nil {
			return err
		}
		for i := range n {
			restoreTag(d.pool, &frames[i])
		}
		over, err := d.take(frames[:n], m)
		q.Cache().Free(frames[:n])
		if err != nil || over {
			return err
		}
		if n == 0 {
			if err := q.Wait(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// take looks at frames, and reports whether it needs no more.
func (d *dump) take(frames []ethernet.Frame, m *match.Frames) (over bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(frames) == 0 {
		if d.lines != nil {
			return false, d.lines.Flush()
		}
		return d.checkOver(), nil
	}
	now := time.Now()
	d.last = now
	for _, f := range frames {
		b := d.pool.Bytes(f)
		if !m.Match(b) {
			continue
		}
		d.matched++
		if err := d.show(now, b); err != nil {
			return false, err
		}
		if d.flags.Count > 0 && d.matched >= d.flags.Count {
			return true, nil
		}
	}
	return d.checker != nil && d.checker.Totals().Complete(), nil
}

// checkOver reports whether all numbered streams have ended, a while ago.
func (d *dump) checkOver() bool {
	if d.checker == nil || d.last.IsZero() || time.Since(d.last) < checkTimeout {
		return false
	}
	t := d.checker.Totals()
	return t.Streams > 0 && t.Ended == t.Streams
}

// show does with a frame what the flags say.
func (d *dump) show(at time.Time, frame []byte) error {
	if d.checker != nil {
		d.checker.Frame(frame)
	}
	switch {
	case d.file != nil:
		d.written = d.file.Write(at, frame, len(frame))
		return d.written
	case d.lines != nil:
		return describe(d.lines, at, frame)
	}
	return nil
}
