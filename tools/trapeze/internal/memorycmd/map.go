package memorycmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/internal/outfile"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/via"
)

// mapReport is the JSON output of map.
type mapReport struct {
	Bytes      int64     `json:"bytes"`
	Page       int       `json:"page_bytes"`
	Local      int64     `json:"local_bytes"`
	UserMode   bool      `json:"user_mode_only" help:"no faults of the kernel"`
	Loaded     int64     `json:"loaded_bytes"`
	Saved      int64     `json:"saved_bytes"`
	Sequential mapRate   `json:"sequential"`
	Touched    int       `json:"touched"`
	Touch      float64   `json:"touch_us" help:"mean"`
	Faults     mapFaults `json:"faults"`
}

// mapRate tells how fast all of it was read.
type mapRate struct {
	Bytes int64   `json:"bytes"`
	Rate  float64 `json:"mb_per_s"`
}

// mapFaults has the counts of the pager.
type mapFaults struct {
	Missed   uint64  `json:"missed" help:"they waited for a server"`
	Returned uint64  `json:"returned" help:"the page was still here"`
	Written  uint64  `json:"written" help:"first writes"`
	Ahead    uint64  `json:"fetched_ahead"`
	Evicted  uint64  `json:"evicted"`
	Back     uint64  `json:"written_back"`
	Fetch    float64 `json:"fetch_us" help:"mean of what a server took"`
}

type mapFlags struct {
	pagerFlags
	Local option.Bytes `flag:"local" default:"64M" range:"1.." help:"how much of the memory may be here at a time"`
	Load  string       `flag:"load" help:"fill the memory from this file, from its beginning"`
	Save  string       `flag:"save" help:"write all of the memory to this file, which is there whole or not at all"`
	Touch int          `flag:"touch" range:"0.." help:"read so many words at random places, at the end"`
	cmdtable.Force
}

func (x *commands) mapped(ctx context.Context, f *mapFlags, _ []string) (err error) {
	if _, err := f.cooperation(); err != nil {
		return err
	}
	if _, err := f.addresses(); err != nil {
		return err
	}
	if err := peer.CheckDevice(f.Device); err != nil {
		return err
	}
	var load *os.File
	var save *outfile.File
	if f.Load != "" {
		if load, err = os.Open(f.Load); err != nil {
			return err
		}
		defer load.Close()
	}
	if f.Save != "" {
		if save, err = outfile.Create(f.Save, 0o600, f.Force.Force); err != nil {
			return outfile.Explain("--save", err)
		}
		defer func() { err = errors.Join(err, save.Discard()) }()
	}
	pager, err := f.command()
	if err != nil {
		return err
	}
	m, err := netmem.Map(ctx, netmem.MapOptions{Command: pager, Local: int64(f.Local), Deadline: 2 * f.Timeout, Stderr: x.Stderr})
	if errors.Is(err, netmem.ErrLocal) {
		return option.Errorf("--local %s: %w", &f.Local, err)
	}
	if err != nil {
		return openError(err)
	}
	// Of a mapping that has failed, its end is no news.
	defer func() {
		if cerr := m.Close(); err == nil {
			err = cerr
		}
	}()
	r := mapReport{Bytes: int64(len(m.Bytes())), Page: m.PageSize(), Local: int64(f.Local), UserMode: m.UserModeOnly()}
	if err := x.useMap(ctx, m, f, load, save, &r); err != nil {
		return err
	}
	stats, err := m.Stats(ctx)
	if err != nil {
		return err
	}
	r.Faults = mapFaults{Missed: stats.Missed, Returned: stats.Returned, Written: stats.Written, Ahead: stats.Ahead, Evicted: stats.Evicted, Back: stats.Back}
	if stats.Missed > 0 {
		r.Faults.Fetch = float64(stats.FetchTime) / 1e3 / float64(stats.Missed)
	}
	return x.Report(r)
}

// useMap loads, saves or reads the memory, and touches it.
func (x *commands) useMap(ctx context.Context, m *netmem.Mapping, f *mapFlags, load *os.File, save *outfile.File, r *mapReport) error {
	var err error
	if load != nil {
		if r.Loaded, err = x.through(ctx, m, "loading "+f.Load, load.Read, true); err != nil {
			return err
		}
		if err := m.Sync(ctx); err != nil {
			return err
		}
	}
	if save != nil {
		if r.Saved, err = x.through(ctx, m, "saving to "+f.Save, save.Write, false); err != nil {
			return err
		}
		if err := save.Commit(); err != nil {
			return outfile.Explain("--save", err)
		}
	}
	if load == nil && save == nil {
		start := time.Now()
		n, err := x.through(ctx, m, "reading", func(b []byte) (int, error) { return len(b), nil }, false)
		if err != nil {
			return err
		}
		r.Sequential = mapRate{n, float64(n) / 1e6 / time.Since(start).Seconds()}
	}
	start, sum := time.Now(), byte(0)
	err = m.Do(func() {
		for r.Touched < f.Touch && ctx.Err() == nil {
			sum ^= m.Bytes()[rand.IntN(len(m.Bytes()))]
			r.Touched++
		}
	})
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if r.Touched > 0 {
		r.Touch = units.Microseconds(time.Since(start)) / float64(r.Touched)
	}
	return err
}

// through passes the memory from its beginning through a buffer of this process: from move
// if into is true, until that says io.EOF, and else to it. It is a buffer because where the
// kernel's own faults are not reported, files cannot be read and written there.
func (x *commands) through(ctx context.Context, m *netmem.Mapping, what string, move func([]byte) (int, error), into bool) (done int64, err error) {
	memory, buffer := m.Bytes(), make([]byte, 256<<10)
	meter := x.Meter(what, int64(len(memory)))
	defer meter.Stop()
	for len(memory) > 0 {
		if ctx.Err() != nil {
			return done, context.Cause(ctx)
		}
		n := min(len(memory), len(buffer))
		if into {
			if n, err = move(buffer[:n]); err == io.EOF {
				return done, nil
			} else if err != nil {
				return done, err
			}
			err = m.Do(func() { copy(memory, buffer[:n]) })
		} else if err = m.Do(func() { copy(buffer, memory[:n]) }); err == nil {
			_, err = move(buffer[:n])
		}
		if err != nil {
			return done, err
		}
		memory, done = memory[n:], done+int64(n)
		meter.Add(n)
	}
	if into {
		if n, _ := move(buffer[:1]); n > 0 {
			return done, fmt.Errorf("the file is larger than the %s that servers lend", option.Bytes(done))
		}
	}
	return done, nil
}

// pagerFlags say where the pages of 'memory map' come from.
type pagerFlags struct {
	clientFlags
	shareFlags
}

// runPager is the command that 'memory map' starts itself with.
func runPager(ctx context.Context, f *pagerFlags, _ []string) error {
	return netmem.RunPager(ctx, func(ctx context.Context) (netmem.PageSource, error) { return f.source(ctx) })
}

// command starts this program as pager with the same flags.
func (f *pagerFlags) command() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	list := []string{self, "memory", "pager", "--device", f.Device, "--timeout", f.Timeout.String()}
	for _, s := range f.Servers {
		list = append(list, "--server", s)
	}
	for _, s := range f.Clients {
		list = append(list, "--client", s)
	}
	if len(f.Clients) > 0 {
		list = append(list, "--name", f.Name, "--cache", strconv.FormatInt(int64(f.Cache), 10), "--lend", strconv.FormatInt(int64(f.Lend), 10))
	}
	return list, nil
}

// source is the memory that servers lend together, with the NIC by which it comes.
type source struct {
	netmem.PageSource
	close func() error
}

func (f *pagerFlags) source(ctx context.Context) (*source, error) {
	servers, err := f.addresses()
	if err != nil {
		return nil, err
	}
	o := netmem.Options{Timeout: f.Timeout}
	if o.Cooperation, err = f.cooperation(); err != nil {
		return nil, err
	}
	nic, err := peer.Open(ctx, f.Device, via.Options{})
	if err != nil {
		return nil, err
	}
	if o.Cooperation == nil {
		s, err := netmem.OpenSource(ctx, nic, servers, o)
		if err != nil {
			return nil, errors.Join(err, nic.Close()) // the mapper explains it
		}
		return &source{s, func() error { return errors.Join(s.(io.Closer).Close(), nic.Close()) }}, nil
	}
	o.Cache, o.ReadAhead = int64(f.Cache), -1 // the pager reads ahead itself
	c, err := netmem.Open(ctx, nic, servers, o)
	if err != nil {
		return nil, errors.Join(err, nic.Close())
	}
	s := c.Source()
	return &source{s, func() error { return errors.Join(s.(io.Closer).Close(), c.Close(), nic.Close()) }}, nil
}

func (s *source) Close() error { return s.close() }
