package kernel

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/pause"
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
// vfio.ErrNotSupported if the kernel knows no way.
//
// If ctx ends while the kernel is at it Reset returns, but the reset goes on,
// and Close waits for it.
func (d *Device) Reset(ctx context.Context) error {
	const op = "reset"
	if !d.info.Resettable {
		return d.fail(op, vfio.ErrNotSupported, hintNoReset)
	}
	if err := ctx.Err(); err != nil {
		return d.fail(op, err, "")
	}
	done, err := d.use(op)
	if err != nil {
		return err
	}
	ctx, cancel := withinReset(ctx)
	finished := make(chan error, 1)
	go func() {
		defer done()
		defer cancel()
		finished <- d.resetNow(ctx)
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

const hintNoReset = "the kernel cannot reset this function on its own: it has neither FLR nor a reset by power management, and shares its bus"

// withinReset gives a context an end if it has none.
func withinReset(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, resetTimeout)
}

// resetNow asks for the reset until the device is not locked, between what has to be
// done before and after.
func (d *Device) resetNow(ctx context.Context) error {
	if err := d.quiesce(); err != nil {
		return err
	}
	for {
		_, err := d.host.sys.ioctlNumber(d.fd, vfioDeviceReset, 0)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EAGAIN) {
			return d.fail("reset", err, d.hintReset(err))
		}
		if pause.For(ctx, resetPause) != nil { // the kernel is at the device itself
			return d.fail("reset", fmt.Errorf("%w: %w", ctx.Err(), err), "the kernel keeps the device locked")
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

func (d *Device) hintReset(err error) string {
	switch {
	case errors.Is(err, unix.EIO):
		return d.host.hostHint(d.fn.Address)
	case errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EINVAL):
		return hintNoReset
	}
	return ""
}
