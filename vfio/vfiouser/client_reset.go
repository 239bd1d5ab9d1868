package vfiouser

import (
	"context"
	"fmt"
	"os"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

// Reset is described at vfio.Device. If the server is lost it connects again,
// and fails with ErrOtherDevice if another device is found there.
func (d *client) Reset(ctx context.Context) error {
	const op = "reset"
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.closed.Load():
		return d.fail(op, vfio.ErrClosed)
	case d.link.Load().lost():
	case !d.device.Load().info.Resettable:
		return d.fail(op, vfio.ErrNotSupported)
	default:
		err := d.resetAlive(ctx)
		if err == nil {
			return nil
		}
		if !d.link.Load().lost() {
			return d.fail(op, err)
		}
	}
	if d.path == "" {
		return d.failHint(op, d.link.Load().err(), "open the device anew: it was given a connection and no path")
	}
	err := d.reconnect(ctx)
	if err != nil {
		return d.failHint(op, err, connectHint(err))
	}
	return nil
}

// resetAlive resets a device whose server is there. mu is held.
func (d *client) resetAlive(ctx context.Context) error {
	// Some servers leave interrupts connected.
	for index := range d.events.indexes() {
		if index == vfio.IRQErr || index == vfio.IRQReq {
			continue
		}
		if err := d.disable(index); err != nil {
			return err
		}
	}
	_, err := d.ask(ctx, protocol.CommandDeviceReset, nil)
	return err
}

// reconnect finds the server again. mu is held.
func (d *client) reconnect(ctx context.Context) error {
	c, err := d.dial(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", vfio.ErrDeviceGone, err)
	}
	l, found, err := d.greet(ctx, c)
	if err != nil {
		return err
	}
	give := func(err error) error {
		l.fail(err)
		<-l.done
		found.close()
		return err
	}
	old := d.device.Load()
	if !found.sameAs(old) {
		return give(ErrOtherDevice)
	}
	for _, m := range d.dma.list {
		if err := mapDMA(ctx, l, m); err != nil {
			return give(err)
		}
	}
	// From here on the mappings are those of the new server.
	for m := range d.mappings {
		r := &found.regions[m.index]
		if err := mapOver(m.bytes, r.fd, r.offset+m.offset, r.Protection()); err != nil {
			return give(os.NewSyscallError("mmap", err))
		}
	}
	<-d.link.Load().done
	d.events.close()
	d.link.Store(l)
	d.device.Store(found)
	old.close()
	if d.closed.Load() {
		return vfio.ErrClosed // Close waits for mu, and closes what is new
	}
	return nil
}
