package memorycmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/extsort"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/via"
)

// demoReport is the JSON output of demo.
type demoReport struct {
	Bytes int64 `json:"bytes"`
	// Records and Digest are known once the records were sorted and checked.
	Records int64    `json:"records,omitempty"`
	Memory  int64    `json:"memory_bytes"`
	Digest  string   `json:"digest,omitempty" help:"of the records, in any order"`
	Network demoJob  `json:"network"`
	File    *demoJob `json:"file,omitempty"`
	Cache   demoUse  `json:"cache"`
	// Incomplete says why it ended before all was sorted.
	Incomplete string `json:"incomplete,omitempty"`
}

// demoJob is the sort in one place.
type demoJob struct {
	Seconds float64 `json:"seconds" help:"of a sort"`
	Rate    float64 `json:"mb_per_s" help:"of all that was read and written"`
	Sorted  bool    `json:"sorted"`
}

// demoUse has the counts of the servers' client.
type demoUse struct {
	Bytes       int64   `json:"cache_bytes"`
	Hits        uint64  `json:"hits"`
	Misses      uint64  `json:"misses"`
	Ahead       uint64  `json:"fetched_ahead"`
	AheadUsed   uint64  `json:"fetched_ahead_used"`
	Fetches     uint64  `json:"fetches"`
	WrittenBack uint64  `json:"written_back"`
	P50         float64 `json:"miss_p50_us"`
	P99         float64 `json:"miss_p99_us"`
}

type demoFlags struct {
	Size        option.Bytes `flag:"size" default:"256M" help:"bytes of records to sort"`
	Memory      option.Bytes `flag:"memory" default:"32M" help:"local memory for that, at least 8M"`
	Servers     int          `flag:"servers" default:"2" help:"number of page servers, 1 to 8"`
	Copies      int          `flag:"copies" default:"1" help:"on how many servers each page is"`
	NoFile      bool         `flag:"no-file" help:"do not sort in a file as well"`
	Cooperative bool         `flag:"cooperative" help:"read a file with the memory of other processes instead"`
	Folder      string       `flag:"folder" help:"where the temporary file is (default the system's place)"`
	Given       cmdtable.Given
}

// demoPage is the size of pages, and leastMemory what the job needs.
const (
	demoPage    = 64 << 10
	leastMemory = 8 << 20
)

func (f *demoFlags) check() error {
	switch {
	case f.Memory < leastMemory:
		return &option.Error{Option: "--memory", Value: f.Memory.String(), Allowed: "8M or more"}
	case f.Size < 1<<20 || f.Size > 64<<30 || f.Size%demoPage != 0:
		return &option.Error{Option: "--size", Value: f.Size.String(), Allowed: "1M to 64G, in steps of 64K"}
	case f.Servers < 1 || f.Servers > 8:
		return &option.Error{Option: "--servers", Value: fmt.Sprint(f.Servers), Allowed: "1 to 8"}
	case f.Copies < 1 || f.Copies > f.Servers:
		return &option.Error{Option: "--copies", Value: fmt.Sprint(f.Copies), Allowed: "1 to the number of servers"}
	}
	return nil
}

func (x *commands) demo(ctx context.Context, f *demoFlags, _ []string) error {
	if f.Cooperative {
		f.coopSizes(f.Given("size"), f.Given("memory"))
		return x.runCoop(ctx, f)
	}
	if err := f.check(); err != nil {
		return err
	}
	r := demoReport{Bytes: int64(f.Size), Memory: int64(f.Memory)}
	var first extsort.Sum
	err := withPair(ctx, func(near, far *via.NIC) (err error) {
		first, err = x.demoNetwork(ctx, near, far, f, &r)
		return err
	})
	if err == nil && !f.NoFile {
		err = x.demoFile(ctx, f, first, &r)
	}
	if errors.Is(err, extsort.ErrSize) {
		err = option.Mark(fmt.Errorf("--memory %s is too little to sort %s: %w", f.Memory.String(), f.Size.String(), err))
	}
	if err != nil {
		err = fmt.Errorf("demo: %w", err)
		if ctx.Err() == nil || r.Network.Rate == 0 {
			return err
		}
		r.Incomplete = context.Cause(ctx).Error()
	}
	if r.Network.Sorted {
		r.Records, r.Digest = first.Records, fmt.Sprintf("%016x", first.Digest)
	}
	return errors.Join(err, x.Print(r, func(w io.Writer) error { return x.printDemo(w, r) }))
}

// demoNetwork sorts in the memory of servers behind far.
func (x *commands) demoNetwork(ctx context.Context, near, far *via.NIC, f *demoFlags, r *demoReport) (sum extsort.Sum, err error) {
	span := 2 * int64(f.Size)
	// Shares of pages differ by a tenth or so.
	share := min(span, span*int64(f.Copies)/int64(f.Servers)*5/4)
	var addresses []string
	for i := range f.Servers {
		s, err := netmem.NewServer(ctx, far, netmem.ServerOptions{Name: fmt.Sprintf("server-%d", i), Page: demoPage, Size: share, Span: span})
		if err != nil {
			return sum, err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		addresses = append(addresses, s.Address().String())
	}
	r.Cache.Bytes = int64(f.Memory) / 4
	c, err := netmem.Open(ctx, near, addresses, netmem.Options{Copies: f.Copies, Cache: r.Cache.Bytes, ReadAhead: 256 << 10, Timeout: 10 * time.Second})
	if err != nil {
		return sum, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	sum, err = x.sort(ctx, "in other memory", c, f, &r.Network, c.Sync)
	s := c.Stats()
	r.Cache.Hits, r.Cache.Misses, r.Cache.Ahead, r.Cache.AheadUsed = s.Hits, s.Misses, s.Ahead, s.AheadUsed
	r.Cache.Fetches, r.Cache.WrittenBack, r.Cache.P50, r.Cache.P99 = s.Fetches, s.WrittenBack, units.Microseconds(s.Median), units.Microseconds(s.P99)
	return sum, err
}

// demoFile sorts in a file, which must give the same.
func (x *commands) demoFile(ctx context.Context, f *demoFlags, want extsort.Sum, r *demoReport) (err error) {
	file, err := os.CreateTemp(f.Folder, "trapeze-memory-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(file.Name()), file.Close()) }()
	r.File = new(demoJob)
	sum, err := x.sort(ctx, "in a file", file, f, r.File, func() error { return nil })
	if err == nil && sum != want {
		err = fmt.Errorf("the file holds other records: %x, not %x", sum, want)
	}
	return err
}

// seed of the records, which are the same each time.
const seed = 1997

// sort makes records in a store, sorts them there and checks them. The job's time and rate are
// told also if that ends early.
func (x *commands) sort(ctx context.Context, where string, s extsort.Store, f *demoFlags, job *demoJob, sync func() error) (extsort.Sum, error) {
	total := extsort.Passes * int64(f.Size)
	meter := x.Meter("sorting "+where, total)
	defer meter.Stop()
	start, done := time.Now(), int64(0)
	tick := func(n int) { meter.Add(n); done += int64(n) }
	defer func() {
		took := time.Since(start).Seconds()
		job.Seconds, job.Rate = took, float64(done)/1e6/took
	}()
	sum, err := extsort.Fill(ctx, s, int64(f.Size), seed, tick)
	if err == nil {
		err = extsort.Sort(ctx, s, int64(f.Size), int(f.Memory)*3/4, tick)
	}
	if err == nil {
		err = sync()
	}
	if err != nil {
		return sum, err
	}
	sorted, err := extsort.Check(ctx, s, int64(f.Size), int64(f.Size), tick)
	if err == nil && sorted != sum {
		err = fmt.Errorf("what was sorted %s is not what was made: %x, not %x", where, sorted, sum)
	}
	if err != nil {
		return sum, err
	}
	job.Sorted = true
	return sum, nil
}

func (x *commands) printDemo(w io.Writer, r demoReport) error {
	on, off := x.Emphasis()
	if r.Network.Sorted {
		fmt.Fprintf(w, "%ssorted%s %d records, %s, in %s of local memory; checked, digest %s\n", on, off, r.Records, option.Bytes(r.Bytes), option.Bytes(r.Memory), r.Digest)
	} else {
		fmt.Fprintf(w, "%snot sorted%s, it ended early\n", on, off)
	}
	fmt.Fprintf(w, "  other memory %6.2f s %10.1f MB/s\n", r.Network.Seconds, r.Network.Rate)
	if r.File != nil {
		fmt.Fprintf(w, "  a file       %6.2f s %10.1f MB/s, cached by the system as it likes%s\n", r.File.Seconds, r.File.Rate, map[bool]string{false: "; not sorted"}[r.File.Sorted])
	}
	_, err := fmt.Fprintf(w, "\n%scache%s of %s: %d hits, %d misses, p50 %.1f us, p99 %.1f us\n  %d pages fetched, %d of them ahead (%d used), %d written back\n", on, off,
		option.Bytes(r.Cache.Bytes), r.Cache.Hits, r.Cache.Misses, r.Cache.P50, r.Cache.P99, r.Cache.Fetches, r.Cache.Ahead, r.Cache.AheadUsed, r.Cache.WrittenBack)
	if r.Incomplete != "" && err == nil {
		_, err = fmt.Fprintf(w, "Incomplete, it ended early: %s\n", r.Incomplete)
	}
	return err
}
