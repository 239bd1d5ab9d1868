package igb

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/function"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/vfio"
)

// device is a NIC. It implements port.NIC.
type device struct {
	port    *port.Port
	options *ethernet.Options
	pci     vfio.Device
	f       *function.Function // nil until it is open
	regs    registers
	model   ethernet.Model
	family  family
	kind    kind
	queues  []*queue
	counted ethernet.DeviceStats // when the device was last asked
}

// kind has the operations that differ between physical and virtual functions. All of it is called
// with the port's lock held, and leaves errors of registers in device.regs.
type kind interface {
	// reset ends all DMA and interrupts and puts the device into its first state.
	reset(ctx context.Context, d *device) error
	// address returns the address that the device has after a reset.
	address(ctx context.Context, d *device) (ethernet.MAC, error)
	// configure sets what holds for all queues, before they are started.
	configure(ctx context.Context, d *device) error
	// enable lets frames flow, once the rings are there.
	enable(d *device)
	// filter has the device receive the frames that f selects.
	filter(ctx context.Context, d *device, f port.Filter) error
	// route has a queue's rings raise a vector.
	route(d *device, queue, vector int)
	// count adds what the device has counted since it was last asked to device.counted.
	count(d *device)
}

func open(ctx context.Context, dev vfio.Device, m ethernet.Model, c ethernet.Options) (ethernet.Port, error) {
	d := &device{pci: dev, model: m, family: familyOf(m), kind: physical{}}
	if d.family.virtual {
		d.kind = &virtualFunction{}
	}
	return port.Open(ctx, d, ethernet.Info{Device: dev.Info().Address, Driver: "igb", Model: m.Name, Tested: m.Tested, Options: c})
}

// checkConfig checks what depends on the model.
func (d *device) checkConfig() error {
	c := d.options
	switch pool := c.Pool.Options(); {
	case c.Queues > d.family.queues:
		return &ethernet.ConfigError{Field: "Options.Queues", Value: c.Queues, Want: fmt.Sprintf("at most %d, as many as a %s has", d.family.queues, d.model.Name)}
	case pool.Size&^1023 < c.MaxFrame():
		return &ethernet.ConfigError{Field: "PoolOptions.Size", Value: pool.Size, Want: fmt.Sprintf("%d: the device fills whole KiB", (c.MaxFrame()+1023)&^1023)}
	case c.Offloads&^d.family.offloads() != 0:
		return fmt.Errorf("%w: a %s has not: %v", ethernet.ErrNotSupported, d.model.Name, c.Offloads&^d.family.offloads())
	}
	return nil
}

func (d *device) Setup(ctx context.Context, p *port.Port, info *ethernet.Info) (err error) {
	d.port, d.options = p, p.Options()
	if err := d.checkConfig(); err != nil {
		return err
	}
	if d.f, err = function.Open(d.pci, d.options.Timeout); err != nil {
		return err
	}
	d.regs.f = d.f
	if d.regs.Registers, err = d.f.OpenRegisters(vfio.RegionBAR0, d.family.registerBytes()); err != nil {
		return err
	}
	if err := d.kind.reset(ctx, d); err != nil {
		return err
	}
	if info.MAC, err = d.kind.address(ctx, d); err != nil {
		return err
	}
	if !p.Filter().MAC.IsStation() {
		return fmt.Errorf("%w: its address is %v, which no station can have", ethernet.ErrProtocol, info.MAC)
	}
	return p.SetupRings(d.f, info, d.makeQueues, func() error { return d.start(ctx) })
}

// start brings a device that has been reset to work.
func (d *device) start(ctx context.Context) error {
	if err := d.kind.configure(ctx, d); err != nil {
		return err
	}
	for _, q := range d.queues {
		if err := q.start(ctx); err != nil {
			return fmt.Errorf("queue %d: %w", q.Index, err)
		}
	}
	d.kind.enable(d)
	d.regs.status() // it is done when this is answered
	if err := d.regs.Take(); err != nil {
		return err
	}
	for _, q := range d.queues {
		q.Run()
	}
	return nil
}

func (d *device) Hint(err error) string {
	switch {
	case errors.Is(err, ethernet.ErrDeviceGone):
		return "the device is asleep, in reset or has been removed: close the port"
	case errors.Is(err, ethernet.ErrNotReady):
		return "Restart resets the device; is its firmware, or its physical function, alive?"
	case errors.Is(err, ethernet.ErrNotSupported), errors.Is(err, ethernet.ErrConfig):
		return ""
	case errors.Is(err, ethernet.ErrProtocol):
		return "the device or its emulation is broken; Options.MAC replaces an address that is bad"
	}
	return ""
}

func (d *device) Link(context.Context) (ethernet.Link, error) {
	status := d.regs.status()
	if err := d.regs.Take(); err != nil || status&statusLinkUp == 0 {
		return ethernet.Link{}, err
	}
	speed := [4]int{10, 100, 1000, 1000}[status&statusSpeed>>6]
	return ethernet.Link{Up: true, Speed: speed, FullDuplex: status&statusFullDuplex != 0}, nil
}

func (d *device) Look(ctx context.Context) (up bool, err error) {
	link, err := d.Link(ctx)
	return link.Up, err
}

func (d *device) Filter(ctx context.Context, to, _ port.Filter) error {
	return errors.Join(d.kind.filter(ctx, d, to), d.regs.Take())
}

func (d *device) Count() (*ethernet.DeviceStats, error) {
	before := d.counted
	d.regs.status()
	d.kind.count(d)
	if err := d.regs.Take(); err != nil {
		d.counted = before
		return nil, err
	}
	now := d.counted
	return &now, nil
}

func (d *device) Restart(ctx context.Context) error {
	err := d.port.RestartRings(func() error {
		if d.port.Failed() == nil {
			d.kind.count(d)
		}
		d.regs.Take()
		return d.kind.reset(ctx, d)
	}, func() error { return d.start(ctx) })
	return errors.Join(err, d.regs.Take())
}

func (d *device) Release() error {
	if d.f == nil {
		return d.pci.Close()
	}
	return d.port.ReleaseRings(d.f, func(ctx context.Context) error {
		d.regs.Take()
		return d.kind.reset(ctx, d)
	})
}
