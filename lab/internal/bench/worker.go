package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/lab/internal/ticks"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/via"
)

// WorkerCommand is the hidden command with which the program starts itself as a
// worker.
const WorkerCommand = "bench-worker"

// readyLine holds what a worker prints once its peer may start.
const readyLine = "ready"

// Role of a worker.
type Role string

const (
	// Source starts round trips, or sends the stream.
	Source Role = "source"
	// Echo sends back what comes, or takes the stream.
	Echo Role = "echo"
	// Both is source and echo in one process.
	Both Role = "both"
	// Server has the NICs of the others, behind vfio-user.
	Server Role = "server"
)

// part is one worker's part of a measurement. The worker reads it as JSON.
type part struct {
	Task
	Role Role
	// Address of the worker's end, and of the other one in role Both.
	Address, Peer string
	Core          int      // -1 for any
	Sockets       []string // of a Server, for a NIC each

	ready  func()
	closes []func() error
}

// later calls f at the end of the part; what was added last is called first.
func (p *part) later(f func() error) { p.closes = append(p.closes, f) }

// RunWorker is the worker's whole life: its part as JSON from r; to w a line when its peer may start,
// and what it has found as JSON.
func RunWorker(ctx context.Context, r io.Reader, w io.Writer) error {
	p := part{ready: func() { fmt.Fprintln(w, readyLine) }}
	if err := json.NewDecoder(io.LimitReader(r, 1<<16)).Decode(&p); err != nil {
		return fmt.Errorf("%w: %w", ErrSpec, err)
	}
	side, err := p.work(ctx)
	if err != nil {
		return caused(ctx, err)
	}
	return json.NewEncoder(w).Encode(side)
}

// work carries out a part. A source ends by itself, an echo when its source has gone.
func (p *part) work(ctx context.Context) (side Side, err error) {
	if err := p.Validate(); err != nil {
		return side, err
	}
	if err := pinProcess(p.Core); err != nil {
		return side, err
	}
	defer func() {
		for _, f := range slices.Backward(p.closes) {
			err = errors.Join(err, f())
		}
	}()
	run, err := p.open(ctx)
	if err != nil {
		return side, err
	}
	stop, err := p.profile()
	if err != nil {
		return side, err
	}
	p.later(stop)
	defer makeGarbage(p.Garbage)()
	return side, run(&side)
}

// open makes the worker's end, or both, and returns what it does.
func (p *part) open(ctx context.Context) (func(*Side) error, error) {
	switch {
	case p.Role == Server:
		return p.openServer(ctx)
	case wires[p.Wire].socket:
		return p.openSocket(ctx)
	case p.Wire == idleKernel || p.Wire == idleRuntime:
		return p.openPipe(ctx)
	case p.Test == Fetch:
		return p.openFetch(ctx)
	case p.Test == Frames:
		return p.openFrames(ctx)
	}
	return p.openMessages(ctx)
}

// Quiet are options of a NIC whose log and errors are not read.
func Quiet() via.Options {
	return via.Options{OnError: func(via.AsyncError) {}, Logger: slog.New(slog.DiscardHandler)}
}

// openNIC opens a NIC until the end.
func (p *part) openNIC(ctx context.Context, address string) (*via.NIC, error) {
	opts := Quiet()
	opts.Eager = p.Eager
	if p.Test == Fetch {
		opts.Waiting = awake
	}
	nic, err := via.Open(ctx, address, opts)
	if err == nil {
		p.later(nic.Close)
	}
	return nic, err
}

// counted adds to side the messages that f counts, and what they took.
func (p *part) counted(side *Side, f func() (messages uint64, err error)) (err error) {
	end := side.account()
	side.Messages, err = f()
	end()
	side.Bytes = side.Messages * uint64(p.Bytes)
	return err
}

// stream sends for a tenth of the time to warm up, and then for all of it.
func (p *part) stream(side *Side, send func(d time.Duration) (uint64, error)) error {
	if _, err := send(p.For / 10); err != nil {
		return err
	}
	return p.counted(side, func() (uint64, error) { return send(p.For) })
}

// calibration is for how long at most the time stamp counter is compared with the clock.
const calibration = 20 * time.Millisecond

// timed times turns, such as round trips, one after the other, by the time stamp counter as
// ucx_perftest does: the clock costs twice as much to read.
func (p *part) timed(side *Side, turn func(i int) error) error {
	side.Latencies = newHistogram()
	rate := ticks.Rate(min(calibration, p.For))
	budget := uint64(float64(p.For) * rate)
	var counted func()
	last := ticks.Now()
	end := last + budget/10
	times := make([]uint64, 0, 4096)
	ways := tests[p.Test].ways
	for i := 0; ; i++ {
		if err := turn(i); err != nil {
			return err
		}
		now := ticks.Now()
		times = append(times, now-last)
		if last = now; len(times) < cap(times) && now < end {
			continue
		}
		// Between two turns, so that it counts for neither.
		if counted != nil {
			side.Messages += ways * uint64(len(times))
			side.Bytes += ways * uint64(p.Bytes) * uint64(len(times))
			for _, t := range times {
				side.Latencies.record(int64(float64(t) / rate / float64(ways)))
			}
		}
		times = times[:0]
		switch {
		case now < end:
		case counted != nil:
			counted()
			return nil
		default:
			counted = side.account()
			end = ticks.Now() + budget
		}
		last = ticks.Now()
	}
}

// garbagePiece is the number of bytes that one allocation has: what a small request of a server
// takes.
const garbagePiece = 1024

// garbageKept holds the last pieces, so that the compiler cannot leave them out.
var garbageKept atomic.Pointer[[garbagePiece]byte]

// makeGarbage allocates and drops rate bytes a second on a goroutine of its own, until
// the function that it returns is called.
func makeGarbage(rate int64) (stop func()) {
	var ended atomic.Bool
	var made sync.WaitGroup
	if rate > 0 {
		made.Go(func() {
			for last := time.Now(); !ended.Load(); {
				time.Sleep(time.Millisecond)
				now := time.Now()
				for due := rate * int64(now.Sub(last)) / int64(time.Second); due > 0; due -= garbagePiece {
					garbageKept.Store(new([garbagePiece]byte))
				}
				last = now
			}
		})
	}
	return func() {
		ended.Store(true)
		made.Wait()
	}
}

// profile writes where a worker's CPU time goes, in the form of "go tool pprof", to a
// file in a folder, until the function that it returns is called. It does nothing
// without a folder.
func (p *part) profile() (stop func() error, err error) {
	if p.Profiles == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(filepath.Join(p.Profiles, fmt.Sprintf("%s-%dB-%s-%d.pprof", p.Test, p.Bytes, p.Role, os.Getpid())))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile()
		return f.Close()
	}, nil
}

// openServer makes both NICs, and serves them behind vfio-user until ctx ends.
func (p *part) openServer(ctx context.Context) (func(*Side) error, error) {
	nics, err := emulator.Fleet(ctx, "emu:", p.Sockets)
	if err != nil {
		return nil, err
	}
	ended := make(chan error, len(nics))
	for i, d := range nics {
		p.later(d.Close)
		server, err := vfiouser.NewServer(d, vfiouser.ServerOptions{})
		if err != nil {
			return nil, err
		}
		l, err := vfiouser.Listen(p.Sockets[i], 0o600)
		if err != nil {
			return nil, err
		}
		go func() { ended <- server.Serve(ctx, l) }()
	}
	p.ready()
	return func(*Side) error { return <-ended }, nil
}
