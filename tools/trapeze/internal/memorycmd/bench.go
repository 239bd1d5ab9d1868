package memorycmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/progress"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// benchReport is the JSON output of bench.
type benchReport struct {
	Page    int        `json:"page_bytes"`
	Fetches int64      `json:"fetches"`
	P50     *float64   `json:"p50_us,omitempty" help:"of one fetch"`
	P99     *float64   `json:"p99_us,omitempty"`
	P999    *float64   `json:"p999_us,omitempty"`
	Read    *benchRate `json:"read,omitempty" help:"in sequence, through the cache"`
	Write   *benchRate `json:"write,omitempty" help:"the same"`
	// Incomplete says why it ended before everything was measured.
	Incomplete string `json:"incomplete,omitempty"`
}

// benchRate is a rate through the cache, in sequence.
type benchRate struct {
	Bytes int64   `json:"bytes"`
	Rate  float64 `json:"mb_per_s"`
}

// measured is nil if nothing was.
func (r benchRate) measured() *benchRate {
	if r.Bytes == 0 {
		return nil
	}
	return &r
}

type benchFlags struct {
	poolFlags `override:"device" help:"address of the NIC to use (default two in this process)"`
	Duration  time.Duration `flag:"duration" default:"1s" help:"how long to measure each, from 1ms to 1m"`
	Page      option.Bytes  `flag:"page" default:"{page}" help:"size of a page of a server in this process, a power of two from 4K to 64K"`
	Write     bool          `flag:"write" help:"overwrite what is lent (default if the server is in this process)"`
}

// benchSize is the memory that a server in this process lends, and benchCache the cache, in bytes.
const (
	benchSize  = 64 << 20
	benchCache = 8 << 20
)

func (x *commands) bench(ctx context.Context, f *benchFlags, _ []string) error {
	servers, err := f.addresses()
	if err != nil {
		return err
	}
	if f.Duration < time.Millisecond || f.Duration > time.Minute {
		return &option.Error{Option: "--duration", Value: f.Duration.String(), Allowed: "1ms to 1m"}
	}
	if f.Device != "" {
		return f.with(ctx, func(nic *via.NIC) error { return x.benchWith(ctx, nic, servers, f) })
	}
	f.Write = true
	return withPair(ctx, func(near, far *via.NIC) error {
		s, err := netmem.NewServer(ctx, far, netmem.ServerOptions{Page: int(f.Page), Size: benchSize})
		if errors.Is(err, netmem.ErrOption) {
			return option.Mark(err)
		}
		if err != nil {
			return err
		}
		err = x.benchWith(ctx, near, []string{s.Address().String()}, f)
		return errors.Join(err, s.Close())
	})
}

func (x *commands) benchWith(ctx context.Context, nic *via.NIC, servers []string, f *benchFlags) (err error) {
	o, err := f.options()
	if err != nil {
		return err
	}
	o.Cache, o.ReadAhead = benchCache, 1<<20
	c, err := netmem.Open(ctx, nic, servers, o)
	if err != nil {
		return openError(err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	meter := x.Steps("measuring", 3)
	defer meter.Stop()
	r := benchReport{Page: c.Page()}
	err = measure(ctx, nic, c, f, &r, meter)
	if err != nil && ctx.Err() == nil || r.Fetches == 0 && r.Write == nil {
		return err
	}
	if err != nil {
		r.Incomplete = err.Error()
	}
	meter.Stop()
	return errors.Join(err, x.Print(r, func(w io.Writer) error { return x.printBench(w, r) }))
}

// measure fills in the report, as far as it comes until ctx ends.
func measure(ctx context.Context, nic *via.NIC, c *netmem.Client, f *benchFlags, r *benchReport, meter *progress.Meter) (err error) {
	block := make([]byte, 64<<10)
	if f.Write {
		start := time.Now()
		write, werr := inSequence(ctx, c, block, f.Duration, c.WriteAt)
		if err = c.Sync(); werr != nil {
			err = werr
		}
		write.Rate = float64(write.Bytes) / 1e6 / time.Since(start).Seconds()
		r.Write = write.measured()
		if err != nil {
			return err
		}
	}
	meter.Add(1)
	h, err := fetches(ctx, nic, c, f.Duration)
	if h != nil && h.TotalCount() > 0 {
		us := func(percent float64) *float64 { return new(float64(h.ValueAtPercentile(percent)) / 1e3) }
		r.Fetches, r.P50, r.P99, r.P999 = h.TotalCount(), us(50), us(99), us(99.9)
	}
	if err != nil {
		return err
	}
	meter.Add(1)
	c.Drop()
	read, err := inSequence(ctx, c, block, f.Duration, c.ReadAt)
	r.Read = read.measured()
	meter.Add(1)
	return err
}

// openError marks what is wrong with the command line.
func openError(err error) error {
	if errors.Is(err, netmem.ErrOption) {
		return option.Mark(err)
	}
	return explain(err)
}

// inSequence reads or writes all that is lent in blocks, for about d. What it has done before an
// error counts.
func inSequence(ctx context.Context, c *netmem.Client, block []byte, d time.Duration, do func([]byte, int64) (int, error)) (r benchRate, err error) {
	start := time.Now()
	defer func() { r.Rate = float64(r.Bytes) / 1e6 / time.Since(start).Seconds() }()
	for off := int64(0); time.Since(start) < d; {
		if ctx.Err() != nil {
			return r, context.Cause(ctx)
		}
		n := min(int64(len(block)), c.Size()-off)
		if _, err := do(block[:n], off); err != nil {
			return r, err
		}
		r.Bytes += n
		if off += n; off == c.Size() {
			off = 0
		}
	}
	return r, nil
}

// fetches times fetches of pages in turn, for about d after some that warm up; also those before
// ctx ends.
func fetches(ctx context.Context, nic *via.NIC, c *netmem.Client, d time.Duration) (*hdrhistogram.Histogram, error) {
	m, err := nic.Alloc(ctx, c.Page(), via.MemoryAttributes{})
	if err != nil {
		return nil, err
	}
	defer func() { _ = m.Close(context.WithoutCancel(ctx)) }() // the NIC is closed soon
	frame := ring.Frame{Memory: m, Length: c.Page()}
	pages := uint64(c.Size()) / uint64(c.Page())
	h := hdrhistogram.New(1, int64(time.Minute), 3)
	began := time.Now()
	for page := uint64(0); ; page = (page + 1) % pages {
		start := time.Now()
		if start.Sub(began) > d+d/10 && h.TotalCount() > 0 {
			return h, nil
		}
		if ctx.Err() != nil {
			return h, context.Cause(ctx)
		}
		if _, err := c.Fetch(context.Background(), page, frame); err != nil {
			return nil, err
		}
		if start.Sub(began) > d/10 {
			// Within the range, so that there can be no error.
			_ = h.RecordValue(int64(min(max(time.Since(start), 1), time.Minute)))
		}
	}
}

// printBench leaves out what was not measured.
func (x *commands) printBench(w io.Writer, r benchReport) (err error) {
	on, off := x.Emphasis()
	if r.Fetches > 0 {
		_, err = fmt.Fprintf(w, "%sfetch of %s%s  p50 %.1f us, p99 %.1f us, p99.9 %.1f us\n", on, option.Bytes(r.Page), off, *r.P50, *r.P99, *r.P999)
	}
	if r.Write != nil && err == nil {
		_, err = fmt.Fprintf(w, "%swrite%s  %10.1f MB/s in sequence\n", on, off, r.Write.Rate)
	}
	if r.Read != nil && err == nil {
		_, err = fmt.Fprintf(w, "%sread%s   %10.1f MB/s in sequence\n", on, off, r.Read.Rate)
	}
	if r.Incomplete != "" && err == nil {
		_, err = fmt.Fprintf(w, "Incomplete, it ended early: %s\n", r.Incomplete)
	}
	return err
}
