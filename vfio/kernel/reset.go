package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// resetPause is between two attempts to reset a device that is locked, and
// resetTimeout how long they go on if the context sets no end.
const (
	resetPause   = 10 * time.Millisecond
	resetTimeout = 10 * time.Second
)

// Reset resets the function alone. Interrupts are disconnected and bus mastering
// is off afterwards, memory decode is on; mappings for DMA stay. It fails with
// vfio.ErrNotSupported if the kernel knows no way: HotReset may.
//
// If ctx ends while the kernel is at it Reset returns, but the reset goes on,
// and Close waits for it.
func (d *Device) Reset(ctx context.Context) error {
	if !d.info.Resettable {
		return d.fail("reset", vfio.ErrNotSupported, "the kernel cannot reset this function on its own: HotReset resets all of its bus or slot")
	}
	return d.reset(ctx, "reset", func() {}, func(ctx context.Context) error {
		return d.resetNow(ctx, "reset", func() error {
			_, err := d.host.sys.ioctlNumber(d.fd, vfioDeviceReset, 0)
			return err
		})
	})
}

// reset has do reset the device, and waits for it or for ctx. In any case it
// calls finally, once, when nothing goes on any more.
func (d *Device) reset(ctx context.Context, op string, finally func(), do func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		finally()
		return d.fail(op, err, "")
	}
	done, err := d.use(op)
	if err != nil {
		finally()
		return err
	}
	ctx, cancel := withinReset(ctx)
	finished := make(chan error, 1)
	go func() {
		defer finally()
		defer done()
		defer cancel()
		finished <- do(ctx)
	}()
	select {
	case err := <-finished:
		return err
	case <-ctx.Done():
	}
	// It may have finished at the same time.
	select {
	case err := <-finished:
		return err
	default:
		return d.fail(op, ctx.Err(), "the kernel is still resetting it")
	}
}

// withinReset gives a context an end if it has none.
func withinReset(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, resetTimeout)
}

// resetNow calls how until the device is not locked, between what has to be
// done before and after.
func (d *Device) resetNow(ctx context.Context, op string, how func() error) error {
	if err := d.quiesce(); err != nil {
		return err
	}
	for {
		err := how()
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EAGAIN) {
			return d.fail(op, err, d.hintReset(op, err))
		}
		select { // the kernel is at the device itself
		case <-ctx.Done():
			return d.fail(op, fmt.Errorf("%w: %w", ctx.Err(), err), "the kernel keeps the device locked")
		case <-time.After(resetPause):
		}
	}
	// The kernel restores most of configuration space.
	return d.setCommand(vfio.CommandMemory, vfio.CommandBusMaster)
}

// quiesce stops interrupts and DMA.
func (d *Device) quiesce() error {
	if err := d.disconnectVectors(); err != nil {
		return d.fail("disconnect the interrupts of", err, "")
	}
	return d.setCommand(0, vfio.CommandBusMaster)
}

func (d *Device) hintReset(op string, err error) string {
	switch {
	case errors.Is(err, unix.EIO):
		return powerHint(d.host.root, d.fn.Address)
	case !errors.Is(err, unix.ENOTTY) && !errors.Is(err, unix.EINVAL):
		return ""
	case op == opHotReset:
		return "the kernel refuses to reset the bus or slot, or the link did not come up again in time: see dmesg"
	}
	return "the kernel cannot reset this function on its own: HotReset resets all of its bus or slot"
}
