package igb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/function"
	"github.com/trapeze-nic/trapeze/vfio"
)

// port is an open NIC.
type port struct {
	f      *function.Function
	regs   registers
	model  ethernet.Model
	family family
	config ethernet.Config
	log    *slog.Logger
	kind   kind
	pool   uint64 // bus address of the first buffer
	queues []*queue
	done   chan struct{} // closed when Close begins
	alerts sync.WaitGroup
	info   ethernet.Info
	opened time.Time

	mu       sync.Mutex // for all that follows, and regs
	closed   bool
	filter   filter
	device   ethernet.DeviceCounters // what the device has counted until it was last asked
	restarts uint64
}

// kind is what physical and virtual functions do in ways of their own. All of it is called
// with the port's lock held, and leaves errors of registers in p.regs.
type kind interface {
	// reset ends all DMA and interrupts and puts the device into its first state.
	reset(ctx context.Context, p *port) error
	// address returns the address that the device has after a reset.
	address(ctx context.Context, p *port) (ethernet.MAC, error)
	// configure sets what holds for all queues, before they are started.
	configure(ctx context.Context, p *port) error
	// enable lets frames flow, once the rings are there.
	enable(p *port)
	// filter has the device receive what p.filter says.
	filter(ctx context.Context, p *port) error
	// route has a queue's rings raise a vector.
	route(p *port, queue, vector int)
	// count adds what the device has counted since it was last asked to p.device.
	count(p *port)
}

func open(ctx context.Context, dev vfio.Device, m ethernet.Model, c ethernet.Config) (*port, error) {
	p := &port{model: m, family: familyOf(m), config: c, done: make(chan struct{}), opened: time.Now(),
		log: c.Logger.With("device", dev.Info().Address, "model", m.Name)}
	p.kind = physical{}
	if p.family.virtual {
		p.kind = &virtualFunction{}
	}
	fail := func(err error) (*port, error) {
		return nil, &ethernet.Error{Op: "open", Device: dev.Info().Address, Err: err, Hint: hint(err)}
	}
	if err := p.checkConfig(); err != nil {
		return fail(errors.Join(err, dev.Close()))
	}
	var err error
	if p.f, err = function.Open(dev, c.Timeout); err != nil {
		return fail(errors.Join(err, dev.Close()))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.setup(ctx); err != nil {
		p.closed = true
		return fail(errors.Join(err, p.shutdown()))
	}
	p.watch()
	return p, nil
}

// checkConfig checks what depends on the model.
func (p *port) checkConfig() error {
	c := &p.config
	switch pool := c.Pool.Config(); {
	case c.Queues > p.family.queues:
		return &ethernet.ConfigError{Field: "Config.Queues", Value: c.Queues, Want: fmt.Sprintf("at most %d: that is what a %s has", p.family.queues, p.model.Name)}
	case pool.Size&^1023 < c.MaxFrame():
		return &ethernet.ConfigError{Field: "PoolConfig.Size", Value: pool.Size, Want: fmt.Sprintf("%d: the device fills whole KiB", (c.MaxFrame()+1023)&^1023)}
	case c.Offloads&^p.family.offloads() != 0:
		return fmt.Errorf("%w: a %s has not: %v", ethernet.ErrNotSupported, p.model.Name, c.Offloads&^p.family.offloads())
	}
	return nil
}

// setup makes the device ready. What it leaves behind when it fails, shutdown takes down.
func (p *port) setup(ctx context.Context) error {
	var err error
	p.regs.f = p.f
	if p.regs.bar, err = p.f.OpenBAR(vfio.RegionBAR0, p.family.registerBytes()); err != nil {
		return err
	}
	if err := p.kind.reset(ctx, p); err != nil {
		return err
	}
	own, err := p.kind.address(ctx, p)
	if err != nil {
		return err
	}
	p.filter = filter{mac: own, promiscuous: p.config.Promiscuous}
	if (p.config.MAC != ethernet.MAC{}) {
		p.filter.mac = p.config.MAC
	}
	if !p.filter.mac.IsStation() {
		return fmt.Errorf("%w: its address is %v, which no station can have", ethernet.ErrProtocol, own)
	}
	if p.pool, err = p.f.MapPool(p.config.Pool); err != nil {
		return err
	}
	if err := p.makeQueues(); err != nil {
		return err
	}
	vectors, err := p.vectors()
	if err != nil {
		return err
	}
	p.info = ethernet.Info{Device: p.f.Address(), Driver: "igb", Model: p.model.Name, Tested: p.model.Tested,
		MAC: own, Config: p.config, Vectors: vectors}
	if err := p.f.Master(); err != nil {
		return err
	}
	return p.start(ctx)
}

// vectors connects an interrupt vector for each queue, if that is asked for and possible,
// and returns how many there are.
func (p *port) vectors() (int, error) {
	if !p.config.Interrupts {
		return 0, nil
	}
	list, err := p.f.Vectors(len(p.queues))
	if err != nil {
		return 0, err
	}
	for i := range list {
		p.queues[i].event = list[i]
	}
	return len(list), nil
}

// start brings a device that has been reset to work.
func (p *port) start(ctx context.Context) error {
	if err := p.kind.configure(ctx, p); err != nil {
		return err
	}
	for _, q := range p.queues {
		if err := q.start(ctx); err != nil {
			return fmt.Errorf("queue %d: %w", q.index, err)
		}
	}
	p.kind.enable(p)
	p.regs.status() // it is done when this is answered
	return p.regs.take()
}

// watch has what the back end tells of the device end the port.
func (p *port) watch() {
	a, ok := p.f.Device().(vfio.Alerter)
	if !ok {
		return
	}
	p.alerts.Go(func() {
		for {
			select {
			case err, ok := <-a.Alerts():
				if !ok {
					return
				}
				p.fail(err)
			case <-p.done:
				return
			}
		}
	})
}

// fail notes that the device cannot be used any more; the data path says so from then on.
func (p *port) fail(err error) {
	p.f.Fail(&ethernet.Error{Op: "use", Device: p.f.Address(), Err: err, Hint: hint(err)})
	p.log.Error("device failed", "err", err)
}

// hint says what may help against an error.
func hint(err error) string {
	switch {
	case errors.Is(err, ethernet.ErrDeviceGone):
		return "the device is asleep, in reset or has been removed: close the port"
	case errors.Is(err, ethernet.ErrNotReady):
		return "Restart resets the device; is its firmware, or its physical function, alive?"
	case errors.Is(err, ethernet.ErrNotSupported), errors.Is(err, ethernet.ErrConfig):
		return ""
	case errors.Is(err, ethernet.ErrProtocol):
		return "the device or its emulation is broken; Config.MAC replaces an address that is bad"
	}
	return ""
}

// Info implements ethernet.Port.
func (p *port) Info() ethernet.Info { return p.info }

// Queue implements ethernet.Port.
func (p *port) Queue(i int) ethernet.Queue {
	if i < 0 || i >= len(p.queues) {
		return nil
	}
	return p.queues[i]
}

// do runs a slow operation on a device that works.
func (p *port) do(op string, f func(ctx context.Context) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.error(op, ethernet.ErrClosed)
	}
	if err := p.f.Failed(); err != nil {
		return p.error(op, err)
	}
	ctx, cancel := p.limited()
	defer cancel()
	err := f(ctx)
	if err = errors.Join(err, p.regs.take()); errors.Is(err, ethernet.ErrDeviceGone) {
		p.fail(err)
	}
	return p.error(op, err)
}

// limited is the context of an operation that has none of its own: it may wait for several
// answers, each of them up to Config.Timeout.
func (p *port) limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*p.config.Timeout)
}

func (p *port) error(op string, err error) error {
	if err == nil {
		return nil
	}
	var inner *ethernet.Error
	if errors.As(err, &inner) { // the reason of a device that has failed
		err = inner.Err
	}
	return &ethernet.Error{Op: op, Device: p.f.Address(), Err: err, Hint: hint(err)}
}

// Link implements ethernet.Port.
func (p *port) Link() (link ethernet.Link, err error) {
	err = p.do("look at the link of", func(context.Context) error {
		link = linkOf(p.regs.status())
		return nil
	})
	return link, err
}

// linkOf reads a link out of STATUS.
func linkOf(status uint32) ethernet.Link {
	if status&statusLinkUp == 0 {
		return ethernet.Link{}
	}
	speed := [4]int{10, 100, 1000, 1000}[status&statusSpeed>>6]
	return ethernet.Link{Up: true, Speed: speed, FullDuplex: status&statusFullDuplex != 0}
}

// Counters implements ethernet.Port.
func (p *port) Counters() ethernet.Counters {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := ethernet.Counters{Restarts: p.restarts, Queues: make([]ethernet.QueueCounters, len(p.queues))}
	for i, q := range p.queues {
		c.Queues[i] = q.counters.load()
	}
	if p.closed || p.f.Failed() != nil {
		return c
	}
	before := p.device
	p.regs.status()
	p.kind.count(p)
	if err := p.regs.take(); err != nil {
		p.device = before
		if errors.Is(err, ethernet.ErrDeviceGone) {
			p.fail(err)
		}
		return c
	}
	device := p.device
	c.Device = &device
	return c
}

// Restart implements ethernet.Port.
func (p *port) Restart(ctx context.Context) error {
	const op = "restart"
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return p.error(op, ethernet.ErrClosed)
	}
	for _, q := range p.queues {
		q.lock.Lock()
		defer q.lock.Unlock()
	}
	if p.f.Failed() == nil {
		p.kind.count(p)
	}
	p.regs.take()
	for _, q := range p.queues {
		q.reclaim() // what has been sent is not lost
	}
	err := p.kind.reset(ctx, p)
	if err == nil {
		for _, q := range p.queues {
			q.empty()
		}
		err = p.start(ctx)
	}
	if err = errors.Join(err, p.regs.take()); err != nil {
		p.fail(err)
		return p.error(op, err)
	}
	p.f.Recovered()
	p.restarts++
	return nil
}

// Close implements ethernet.Port.
func (p *port) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	err := p.shutdown()
	p.alerts.Wait()
	return p.error("close", err)
}

// shutdown gives everything back. The queues answer ErrClosed before memory goes.
func (p *port) shutdown() error {
	close(p.done)
	for _, q := range p.queues {
		q.lock.Lock()
		q.closed = true
		q.lock.Unlock()
	}
	err := p.f.Close(func() error {
		ctx, cancel := p.limited()
		defer cancel()
		p.regs.take()
		return p.kind.reset(ctx, p)
	})
	if !errors.Is(err, ethernet.ErrNotStopped) {
		for _, q := range p.queues {
			q.empty()
			q.cache.Close()
		}
	}
	return err
}
