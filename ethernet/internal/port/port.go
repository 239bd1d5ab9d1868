// Package port is the part of a port that does not depend on its NIC: failing, restarts, the watch
// over device and link, filters, counters, and waiting. A driver implements NIC and Ring, and keeps
// its data path to itself.
package port

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// NIC does what differs from device to device. Its methods run with Port.Mu held, and never on
// the data path. A context bounds each call that may wait for several answers of the device.
type NIC interface {
	// Setup makes the device ready and fills in the rest of info, which stays readable until
	// Release. It calls Port.Add for each queue.
	Setup(ctx context.Context, p *Port, info *ethernet.Info) error
	// Restart resets the device and sets it up again with Port.Filter. A queue that it pauses stays
	// paused if it fails.
	Restart(ctx context.Context) error
	// Release pauses the queues, stops the device and gives everything back. After a Setup that
	// failed it gives back what there is.
	Release() error
	// Link reads the state of the link.
	Link(ctx context.Context) (ethernet.Link, error)
	// Look runs at least each 100 ms. It says whether the link is up. An error fails the port.
	Look(ctx context.Context) (up bool, err error)
	// Filter has the device receive what to selects. from is the filter of now, which holds if
	// Filter fails.
	Filter(ctx context.Context, to, from Filter) error
	// Count returns the counters of the device since Setup, nil if it has none.
	Count() (*ethernet.DeviceStats, error)
	// Hint says what may help against an error; empty if nothing does.
	Hint(err error) string
}

// Port implements ethernet.Port over a NIC.
type Port struct {
	nic     NIC
	options ethernet.Options
	info    ethernet.Info
	queues  []*Queue
	rings   []*Rings
	pool    uint64 // bus address of the pool, of a port with rings
	watch   *watch

	// Mu serializes all use of the device off the data path. Locks of queues are taken inside it.
	Mu       sync.Mutex
	filter   Filter
	restarts uint64
	closed   bool

	failure atomic.Pointer[failure]
}

// failure is the error that a port answers with.
type failure struct{ err error }

// New makes a port that is not set up nor watched, as tests of a driver's rings need it.
func New(nic NIC, info ethernet.Info) *Port {
	c := info.Options
	return &Port{nic: nic, options: c, info: info, watch: newWatch(),
		filter: Filter{MAC: c.MAC, Promiscuous: c.Promiscuous}}
}

// Open makes a port of a NIC. info has its address, driver and options, with the defaults filled in.
// If Open fails the NIC has been released.
func Open(ctx context.Context, nic NIC, info ethernet.Info) (ethernet.Port, error) {
	p := New(nic, info)
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if err := nic.Setup(ctx, p, &p.info); err != nil {
		return nil, p.Error("open", errors.Join(err, nic.Release()))
	}
	p.watch.done.Go(p.look)
	return p, nil
}

// Options returns the options with the defaults filled in.
func (p *Port) Options() *ethernet.Options { return &p.options }

// Log returns the logger, which names the device.
func (p *Port) Log() *slog.Logger { return p.options.Logger.With("device", p.info.Device) }

// Error is the error of a method; nil for nil.
func (p *Port) Error(op string, err error) error {
	if err == nil {
		return nil
	}
	return &ethernet.Error{Op: op, Device: p.info.Device, Err: err, Hint: p.nic.Hint(err)}
}

// Fail makes the port answer with err until Restart succeeds. The first reason stays. Any goroutine
// may call it.
func (p *Port) Fail(err error) {
	if p.failure.CompareAndSwap(nil, &failure{p.Error("use", err)}) {
		p.Log().Warn("a port has failed", "error", err)
	}
}

// Failed returns the reason of Fail, ErrClosed after Close, and nil for a port that works. Any
// goroutine may call it.
func (p *Port) Failed() error {
	if f := p.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// Poke has the port looked at soon. Any goroutine may call it.
func (p *Port) Poke() { p.watch.poke() }

// Do runs an operation on a port that works, with Mu held.
func (p *Port) Do(op string, f func(ctx context.Context) error) error {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if err := p.Failed(); err != nil {
		return err
	}
	ctx, cancel := p.Limited()
	defer cancel()
	err := f(ctx)
	if errors.Is(err, ethernet.ErrDeviceGone) {
		p.Fail(err)
	}
	return p.Error(op, err)
}

// Limited is the context of an operation that has none of its own: it may wait for several answers,
// each of them up to Options.Timeout.
func (p *Port) Limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*p.options.Timeout)
}

func (p *Port) Info() ethernet.Info { return p.info }

func (p *Port) Queue(i int) ethernet.Queue {
	if i < 0 || i >= len(p.queues) {
		return nil
	}
	return p.queues[i].ring
}

func (p *Port) Link() (link ethernet.Link, err error) {
	err = p.Do("ask for the link of", func(ctx context.Context) error {
		link, err = p.nic.Link(ctx)
		return err
	})
	return link, err
}

func (p *Port) Stats() ethernet.Stats {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	c := ethernet.Stats{Restarts: p.restarts, Queues: make([]ethernet.QueueStats, len(p.queues))}
	for i, q := range p.queues {
		c.Queues[i] = q.Counters.read()
	}
	if p.Failed() != nil {
		return c
	}
	device, err := p.nic.Count()
	if errors.Is(err, ethernet.ErrDeviceGone) {
		p.Fail(err)
	}
	if err == nil {
		c.Device = device
	}
	return c
}

func (p *Port) Restart(ctx context.Context) error {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.closed {
		return p.Error("restart", ethernet.ErrClosed)
	}
	return p.restart(ctx)
}

// restart is Restart with Mu held.
func (p *Port) restart(ctx context.Context) error {
	err := p.nic.Restart(ctx)
	p.failure.Store(nil)
	if err != nil {
		p.Fail(err)
		return p.Error("restart", err)
	}
	p.restarts++
	return nil
}

func (p *Port) Close() error {
	p.watch.end()
	p.Mu.Lock()
	defer p.Mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.failure.Store(&failure{p.Error("use", ethernet.ErrClosed)})
	return p.Error("close", p.nic.Release())
}
