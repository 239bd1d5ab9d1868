package driver

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
)

// Health is the state of a device.
type Health = telemetry.Health

// Health reads the state of the device. It works on a device that has failed.
// It fails with ErrDeviceGone or ErrClosed.
func (n *NIC) Health(ctx context.Context) (Health, error) {
	return get(ctx, n.doAny, "read health", func() (h Health, err error) {
		if err := ctx.Err(); err != nil {
			return Health{}, err
		}
		var lost uint32
		err = n.regs.readAll(ctx, datasheet.BlockHealth, reading{datasheet.RegFault, &h.Fault}, reading{datasheet.RegFaultDetail, &h.FaultDetail},
			reading{datasheet.RegResetCount, &h.Resets}, reading{datasheet.RegHeartbeat, &h.Heartbeat})
		if err == nil {
			err = n.regs.readAll(ctx, datasheet.BlockAdmin, reading{datasheet.RegEventsLost, &lost})
		}
		if err != nil {
			return Health{}, err
		}
		// Last, for a device that has gone meanwhile has left nonsense in the others.
		status, err := n.regs.status(ctx)
		if err != nil && ended(ctx, err) {
			return Health{}, err
		}
		if err != nil {
			return Health{}, n.fail(err)
		}
		h.Ready = status&datasheet.DeviceReady != 0
		h.Resetting = status&datasheet.DeviceResetting != 0
		h.Fatal = status&datasheet.DeviceFatal != 0
		h.LinkUp = status&datasheet.DeviceLinkUp != 0
		h.EventsLost = uint64(lost) + n.events.Lost()
		return h, nil
	})
}

// Clock reads the device's clock. It fails with ErrNotSupported if there is
// none.
func (n *NIC) Clock() (d time.Duration, err error) {
	err = n.inBlock("read clock", datasheet.BlockClock, func() error {
		unit, err := n.regs.read(n.background, datasheet.BlockClock, datasheet.RegClockResolution)
		if err != nil {
			return err
		}
		ticks, err := n.regs.read64(datasheet.BlockClock, datasheet.RegClockLow)
		if err != nil {
			return err
		}
		high, ns := bits.Mul64(ticks, uint64(unit))
		if unit == 0 || high != 0 || ns > math.MaxInt64 {
			return fmt.Errorf("%w: clock of %d units of %d ns", ErrBadRegisters, ticks, unit)
		}
		d = time.Duration(ns)
		return nil
	})
	return d, err
}

// healthInterval is the least time between two looks of waits whether the device lives.
const healthInterval = 2 * time.Millisecond

// polled is alive for callers that poll: it costs no message.
func (n *NIC) polled() error {
	if n.remote == nil {
		return n.alive()
	}
	select {
	case <-n.remote.Lost():
		return n.fail(ErrDeviceGone)
	default:
		return n.failed()
	}
}

// alive reports why the device can be expected to do nothing any more, if so.
func (n *NIC) alive() error {
	if err := n.failed(); err != nil {
		return err
	}
	now := int64(time.Since(n.opened))
	last := n.lastCheck.Load()
	if now-last < int64(healthInterval) || !n.lastCheck.CompareAndSwap(last, now) {
		return nil
	}
	if n.remote == nil {
		return n.check()
	}
	// It may not answer, and the call that waits here has a context: what is found is
	// seen by the next look.
	if n.checking.CompareAndSwap(0, now) {
		go func() {
			defer n.checking.Store(0)
			_ = n.check()
		}()
	}
	return nil
}

// failUnlessClosing is fail for what a look at the device has found. A device that
// is being closed is reset by that, which is no fault.
func (n *NIC) failUnlessClosing(err error) error {
	if n.closing.Load() {
		return descriptors.ErrClosed
	}
	return n.fail(err)
}

// errReset: the device has forgotten all that it was told.
var errReset = fmt.Errorf("%w: it was reset by another program", ErrDeviceFault)

// check looks at the status register. What it finds wrong stays wrong until the
// NIC is opened again.
func (n *NIC) check() error {
	status, err := n.regs.status(n.background)
	switch {
	case errors.Is(err, descriptors.ErrClosed):
		return err
	case err != nil:
		return n.failUnlessClosing(err)
	case status&datasheet.DeviceFatal != 0:
		return n.failUnlessClosing(n.regs.fault())
	case status&datasheet.DeviceReady == 0:
		return n.failUnlessClosing(errReset)
	}
	return nil
}

// notDone is the answer when nothing of a queue has completed, which it never will on a
// device that has failed: it may ask that.
func (n *NIC) notDone(side string, ask bool) error {
	err := n.failed()
	if err == nil && ask {
		err = n.polled()
	}
	if err != nil {
		return n.error(side, err)
	}
	return descriptors.ErrNotDone
}

// unlessGone is err, but nil for a device that is gone, as found before or just now:
// from that nothing has to be taken back.
func (n *NIC) unlessGone(err error) error {
	if errors.Is(err, ErrDeviceGone) || errors.Is(n.failed(), ErrDeviceGone) {
		return nil
	}
	return err
}
