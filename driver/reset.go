package driver

import (
	"context"
	"errors"
	"fmt"
	"runtime/trace"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// reset resets the device and waits until it is ready again.
func (n *NIC) reset(ctx context.Context) error {
	defer trace.StartRegion(ctx, "NIC reset").End()
	const health = datasheet.BlockHealth
	before, err := n.regs.read(ctx, health, datasheet.RegResetCount)
	if err != nil {
		return err
	}
	if err := n.regs.writeContext(ctx, health, datasheet.RegControl, datasheet.ControlReset); err != nil {
		return err
	}
	var last uint32
	err = n.waitRegister(ctx, func() (bool, error) {
		status, err := n.regs.status(ctx)
		if err != nil {
			return false, err
		}
		last = status
		if status&datasheet.DeviceReady == 0 || status&datasheet.DeviceResetting != 0 {
			return false, nil
		}
		// Ready from before the reset does not count.
		n.resets, err = n.regs.read(ctx, health, datasheet.RegResetCount)
		return n.resets != before, err
	})
	switch {
	case errors.Is(err, errDeadline):
		return fmt.Errorf("%w within %v of a reset: status %#x", ErrNotReady, n.options.CommandTimeout, last)
	case err != nil:
		return err
	case last&datasheet.DeviceFatal != 0:
		return fmt.Errorf("%w: status %#x after a reset", ErrNotReady, last)
	}
	return nil
}

// waitRegister calls f, now and then, until it returns true or an error, ctx
// ends, or the command timeout runs out, which is errDeadline.
func (n *NIC) waitRegister(ctx context.Context, f func() (bool, error)) error {
	left := newTimeLeft(n.options.CommandTimeout)
	for pause := firstStep; ; pause = min(2*pause, longestStep) {
		if ok, err := f(); ok || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if left.over() {
			return errDeadline
		}
		if n.poller == nil || !n.poller.Poll() {
			time.Sleep(pause)
		}
	}
}
