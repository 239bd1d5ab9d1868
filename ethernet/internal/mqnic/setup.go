package mqnic

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// quiet turns everything of the interface off. A driver before this one may have left anything on.
func (d *device) quiet(ctx context.Context) error {
	r, l := &d.regs, d.layout
	d.halt()
	for _, m := range []manager{l.tx, l.rx, l.cq, l.eq} {
		for i := range m.count {
			r.Write(m.queue(i)+queueCommand, cmdOff)
			if i%1024 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	for _, at := range l.ports {
		r.Write(at+portTX, 0)
	}
	if err := r.Take(); err != nil {
		return err
	}
	for _, q := range d.queues {
		if err := q.stop(ctx); err != nil {
			return err
		}
	}
	return nil
}

// halt ends the flow of frames: nothing is received, and no queue is scheduled.
func (d *device) halt() {
	r, l := &d.regs, d.layout
	r.alive()
	for _, at := range l.ports {
		r.Write(at+portRX, 0)
	}
	for _, s := range l.schedulers {
		r.Write(s.at+schedControl, 0)
	}
}

// start brings an interface that is off to work.
func (d *device) start(ctx context.Context) error {
	r, l, c := &d.regs, d.layout, d.options
	for _, q := range d.queues {
		if err := q.start(); err != nil {
			return fmt.Errorf("queue %d: %w", q.Index, err)
		}
	}
	r.Write(l.ctrl+ifTX, uint32(c.MaxFrame()))
	r.Write(l.ctrl+ifRX, uint32(c.MaxFrame()))
	d.spread()
	if d.card.irq != nil && c.Moderation > 0 {
		r.Write(d.card.irq.at+irqInterval, uint32(c.Moderation/time.Microsecond))
	}
	// As Linux's driver has it (mqnic_port.c): no flow control, and a watermark of two frames.
	if at := l.ports[0]; true {
		r.Write(at+portLFC, min(2*l.maxRX, watermark))
		r.Write(at+portTX, portEnable)
	}
	for i := range l.schedulers {
		r.Write(l.schedulers[i].at+schedControl, 1)
	}
	for _, q := range d.queues {
		d.schedule(q.send.number, channelOn)
	}
	r.Write(l.ports[0]+portRX, portEnable)
	r.alive() // it is done when this is answered
	if err := errors.Join(r.Take(), ctx.Err()); err != nil {
		return err
	}
	for _, q := range d.queues {
		q.Run()
	}
	return nil
}

// schedule sets the state of a transmit queue's channels.
func (d *device) schedule(queue, state uint32) {
	for _, s := range d.layout.schedulers {
		d.regs.Write(s.channels.queue(queue), state)
	}
}

// spread fills the RSS indirection table round-robin. An application in the card adds what
// it likes, as far as there are entries.
func (d *device) spread() {
	r, l := &d.regs, d.layout
	for i := range l.entries {
		r.Write(l.table+4*uint64(i), i%uint32(len(d.queues)))
	}
	hash, app := uint32(0), uint32(0)
	if len(d.queues) > 1 {
		hash = allOnes
	}
	if d.card.app != 0 {
		app = l.entries - 1
	}
	r.Write(l.queueMap+mapPorts+mapRSS, hash)
	r.Write(l.queueMap+mapPorts+mapApp, app)
}

// stop takes all rings from the interface.
func (d *device) stop(ctx context.Context) error {
	d.halt()
	for _, q := range d.queues {
		d.schedule(q.send.number, 0)
	}
	if err := d.regs.Take(); err != nil {
		return err
	}
	for _, q := range d.queues {
		if err := q.stop(ctx); err != nil {
			return err
		}
	}
	for _, at := range d.layout.ports {
		d.regs.Write(at+portTX, 0)
	}
	d.regs.alive()
	return d.regs.Take()
}

func (d *device) Restart(ctx context.Context) error {
	err := d.port.RestartRings(func() error {
		d.regs.Take()
		return d.stop(ctx)
	}, func() error { return d.start(ctx) })
	return errors.Join(err, d.regs.Take())
}

func (d *device) Release() error {
	if d.f == nil {
		return d.pci.Close()
	}
	return d.port.ReleaseRings(d.f, func(ctx context.Context) error {
		d.regs.Take()
		return d.stop(ctx)
	})
}
