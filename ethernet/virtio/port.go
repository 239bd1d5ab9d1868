package virtio

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/virtio/internal/transport"
)

// ErrNeedsReset: the device says that it is broken (DEVICE_NEEDS_RESET). Port.Restart resets it.
var ErrNeedsReset = transport.ErrNeedsReset

// What agree refuses, for the hints.
var (
	errNoPacked = fmt.Errorf("%w: packed queues (VIRTIO_F_RING_PACKED)", ethernet.ErrNotSupported)
	errQueues   = fmt.Errorf("%w: number of queues", ethernet.ErrNotSupported)
)

// port is an open device.
type port struct {
	info   ethernet.Info
	config ethernet.Config
	pool   *ethernet.Pool
	ring   string // ringPacked, ringSplit, or empty for any

	// mu is held by who talks to the device. The locks of queues are taken inside.
	mu        sync.Mutex
	device    transport.Transport
	features  uint64
	state     transport.Config
	mac       ethernet.MAC
	filter    filter
	control   *control
	memory    []byte // of commands and all rings
	memoryBus uint64
	poolBus   uint64
	closed    bool

	queues   []*queue
	failure  atomic.Pointer[failure]
	restarts atomic.Uint64
	watch    watch
}

// failure is why a port does nothing any more.
type failure struct{ err error }

// open takes a device and makes it ready. It is the port's from then on, or closed.
func open(ctx context.Context, d transport.Transport, info ethernet.Info, ring string) (_ *port, err error) {
	c := info.Config
	p := &port{info: info, config: c, pool: c.Pool, ring: ring, device: d, mac: c.MAC,
		watch: watch{poked: make(chan struct{}, 1), renewed: make(chan struct{}, 1)}}
	p.filter.promiscuous = c.Promiscuous
	defer func() {
		if err != nil {
			err = p.fail("open", errors.Join(err, p.release()))
		}
	}()
	if c.Pool.Config().Headroom < headerSize {
		return nil, &ethernet.ConfigError{Field: "PoolConfig.Headroom", Value: c.Pool.Config().Headroom,
			Want: fmt.Sprintf("at least %d, for what virtio puts before a frame", headerSize)}
	}
	if err := p.setUp(ctx); err != nil {
		return nil, err
	}
	p.watch.start(p)
	return p, nil
}

// vhost reports whether the device is behind a back end of vhost-user.
func (p *port) vhost() bool { return p.info.Model == vhostModel }

// fail makes an error of a method.
func (p *port) fail(op string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, ethernet.ErrDeviceGone) && p.vhost():
		hint = "does the back end still run? Restart connects again"
	case errors.Is(err, ErrNeedsReset):
		hint = "Restart resets it"
	case errors.Is(err, errNoPacked):
		hint = "give ring=split or no ring, or have the back end offer packed queues"
	case errors.Is(err, errQueues) && p.vhost():
		hint = fmt.Sprintf("ask for fewer, or give the back end as many: net_vhost of DPDK takes queues=%d", p.config.Queues)
	}
	return &ethernet.Error{Op: op, Device: p.info.Device, Err: err, Hint: hint}
}

// failed returns why the port does nothing any more, nil if it does.
func (p *port) failed() error {
	if f := p.failure.Load(); f != nil {
		return f.err
	}
	return nil
}

// giveUp has the port answer with err. mu is held, or nobody else has the port yet.
func (p *port) giveUp(err error) {
	if p.failure.CompareAndSwap(nil, &failure{p.fail("use", err)}) {
		p.config.Logger.Warn("a port has failed", "device", p.info.Device, "error", err)
	}
}

// usable locks the device, and fails if the port does nothing any more.
func (p *port) usable() error {
	p.mu.Lock()
	if err := p.failed(); err != nil {
		p.mu.Unlock()
		return err
	}
	return nil
}

// Info describes the port.
func (p *port) Info() ethernet.Info { return p.info }

// Queue returns a queue.
func (p *port) Queue(i int) ethernet.Queue {
	if i < 0 || i >= len(p.queues) {
		return nil
	}
	return p.queues[i]
}

// Link asks how the link is. Devices that do not say have one.
func (p *port) Link() (ethernet.Link, error) {
	if err := p.usable(); err != nil {
		return ethernet.Link{}, err
	}
	defer p.mu.Unlock()
	c, err := p.device.Config(context.Background())
	if err == nil {
		err = p.device.Health()
	}
	if err != nil {
		return ethernet.Link{}, p.fail("ask for the link of", err)
	}
	l := ethernet.Link{Up: c.LinkUp || p.features&transport.FeatureStatus == 0}
	if p.features&transport.FeatureSpeed != 0 {
		l.Speed, l.FullDuplex = c.Speed, c.FullDuplex
	}
	return l, nil
}

// MAC returns the address that frames are received for.
func (p *port) MAC() ethernet.MAC {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mac
}

// Counters returns what was counted. The device counts nothing itself.
func (p *port) Counters() ethernet.Counters {
	c := ethernet.Counters{Restarts: p.restarts.Load()}
	for _, q := range p.queues {
		c.Queues = append(c.Queues, q.counters.read())
	}
	return c
}

// Restart resets the device and sets it up again.
func (p *port) Restart(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.fail("restart", ethernet.ErrClosed)
	}
	return p.restart(ctx)
}

// restart is Restart with mu held.
func (p *port) restart(ctx context.Context) error {
	p.pause()
	err := p.device.Stop(ctx)
	switch {
	case err == nil:
		p.reclaim()
		err = p.start(ctx)
	case !errors.Is(err, ethernet.ErrDeviceGone) || errors.Is(err, ethernet.ErrNotReady):
		// It may still use buffers and rings, so they are left as they are.
		err = fmt.Errorf("%w: %w", ethernet.ErrNotStopped, err)
	}
	if err != nil {
		p.failure.Store(nil)
		p.giveUp(err)
		return p.fail("restart", err)
	}
	p.restarts.Add(1)
	p.failure.Store(nil)
	p.watch.renew()
	return nil
}

// Close stops the device and gives everything back.
func (p *port) Close() error {
	p.watch.end()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	p.failure.Store(&failure{p.fail("use", ethernet.ErrClosed)})
	if err := p.release(); err != nil {
		return p.fail("close", err)
	}
	return nil
}

// release gives everything back that the port has. What the device may still touch is not.
func (p *port) release() error {
	p.pause()
	ctx, cancel := context.WithTimeout(context.Background(), p.config.Timeout)
	defer cancel()
	if err := p.device.Stop(ctx); err == nil || errors.Is(err, ethernet.ErrDeviceGone) {
		p.reclaim() // if it fails Close tells, which tries harder
	}
	err := p.device.Close()
	for _, q := range p.queues {
		err = errors.Join(err, q.close())
	}
	return err
}
