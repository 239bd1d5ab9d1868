package memorycmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/via"
)

// demoReport is the JSON output of demo.
type demoReport struct {
	Bytes   int64   `json:"bytes" help:"of the other memory"`
	Cache   int64   `json:"cache_bytes"`
	Write   float64 `json:"write_mb_per_s" help:"in sequence"`
	Read    float64 `json:"read_mb_per_s" help:"the same"`
	Reads   int     `json:"random_reads"`
	Hits    uint64  `json:"hits" help:"of the cache, in all"`
	Misses  uint64  `json:"misses"`
	P50     float64 `json:"miss_p50_us"`
	P99     float64 `json:"miss_p99_us"`
	Fetches uint64  `json:"fetches"`
	Ahead   uint64  `json:"fetched_ahead"`
	Back    uint64  `json:"written_back"`
}

type demoFlags struct {
	Size   option.Bytes `flag:"size" default:"256M" range:"1M..64G" help:"bytes of the other memory"`
	Memory option.Bytes `flag:"memory" default:"32M" range:"512K.." help:"bytes of the cache"`
}

// Each block of demoBlock bytes is random, by its own seed. Single pages are read demoReads times.
const (
	demoBlock = 256 << 10
	demoReads = 10_000
)

func (x *commands) demo(ctx context.Context, f *demoFlags, _ []string) (err error) {
	if f.Size%demoBlock != 0 {
		return &option.Error{Option: "--size", Value: f.Size.String(), Allowed: "steps of 256K"}
	}
	near, far, err := peer.OpenPair(ctx, via.Options{}, emulator.PairOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, far.Close(), near.Close()) }()
	s, err := netmem.NewServer(ctx, far, netmem.ServerOptions{Size: int64(f.Size)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c, err := netmem.Open(ctx, near, []string{s.Address().String()}, netmem.Options{Cache: int64(f.Memory), ReadAhead: 256 << 10})
	if err != nil {
		return openError(err)
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	r := demoReport{Bytes: c.Size(), Cache: int64(f.Memory), Reads: demoReads}
	if err := x.fill(ctx, c, &r); err != nil {
		return fmt.Errorf("demo: %w", err)
	}
	n := c.Stats()
	r.Hits, r.Misses, r.P50, r.P99 = n.Hits, n.Misses, units.Microseconds(n.Median), units.Microseconds(n.P99)
	r.Fetches, r.Ahead, r.Back = n.Fetches, n.Ahead, n.WrittenBack
	return x.Report(r)
}

// fill writes all of the memory, reads it again, and then pages of it at random.
func (x *commands) fill(ctx context.Context, c *netmem.Client, r *demoReport) error {
	want, got := make([]byte, demoBlock), make([]byte, demoBlock)
	meter := x.Meter("using other memory", 2*r.Bytes)
	defer meter.Stop()
	each := func(do func(at int64) error) (rate float64, err error) {
		start := time.Now()
		for at := int64(0); at < r.Bytes; at += demoBlock {
			if ctx.Err() != nil {
				return 0, context.Cause(ctx)
			}
			_, _ = rand.NewChaCha8([32]byte{byte(at >> 18), byte(at >> 26), byte(at >> 34)}).Read(want) // it never fails
			if err := do(at); err != nil {
				return 0, err
			}
			meter.Add(demoBlock)
		}
		err = c.Sync()
		return float64(r.Bytes) / 1e6 / time.Since(start).Seconds(), err
	}
	var err error
	if r.Write, err = each(func(at int64) error { _, err := c.WriteAt(want, at); return err }); err != nil {
		return err
	}
	if r.Read, err = each(func(at int64) error {
		if _, err := c.ReadAt(got, at); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return fmt.Errorf("what was written at %d has come back otherwise", at)
		}
		return nil
	}); err != nil {
		return err
	}
	for range r.Reads {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		page := rand.Int64N(r.Bytes / int64(c.Page()))
		if _, err := c.ReadAt(got[:c.Page()], page*int64(c.Page())); err != nil {
			return err
		}
	}
	return nil
}
