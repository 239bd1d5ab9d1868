package kernel

import (
	"context"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestReset: interrupts and bus mastering are off, memory decode is on, and
// mappings are where they were.
func TestReset(t *testing.T) {
	forEachBackend(t, func(t *testing.T, k *fake, d *Device) {
		f := k.functions[nic]
		if d.Info().Backend != backendNoIOMMU {
			must.OK(t, d.MapDMA(alloc(t, 4096), 0x1000, both))
		}
		mapped := k.mapped()
		fd := eventfd(t)
		must.OK(t, d.SetIRQs(vfio.IRQMSIX, 0, []int{fd.FD()}))
		command := []byte{byte(vfio.CommandBusMaster | vfio.CommandMemory), 0}
		must.OK(t, d.WriteRegion(vfio.RegionConfig, vfio.ConfigCommand, command))
		f.locked = 3 // the kernel is at it itself, for a while
		must.OK(t, d.Reset(withTimeout(t)))
		should.Hold(t, f.resets == 1 && !f.busMaster[0], "%d resets, bus mastering during them %v", f.resets, f.busMaster)
		should.Be(t, f.command(), vfio.CommandMemory, "command register")
		got := f.connected(k, vfio.IRQMSIX)
		should.Hold(t, len(got) == 0, "vectors %v are connected", got)
		should.Be(t, len(f.connected(k, vfio.IRQReq)), 1, "the request interrupt is not armed any more")
		should.Be(t, len(k.mapped()), len(mapped), "mapped %#x, before %#x", k.mapped(), mapped)
	})
}

func TestResetFails(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(k *fake, d *Device)
		want   error
		says   string
	}{
		{"no way", func(_ *fake, d *Device) { d.info.Resettable = false }, vfio.ErrNotSupported, "on its own"},
		{"no way after all", func(k *fake, _ *Device) { k.fail["DEVICE_RESET"] = unix.ENOTTY }, unix.ENOTTY, "on its own"},
		{"asleep", func(k *fake, _ *Device) { k.fail["DEVICE_RESET"] = unix.EIO }, unix.EIO, "trapeze doctor"},
		{"interrupts stay", func(k *fake, d *Device) {
			if err := d.SetIRQs(vfio.IRQMSI, 0, []int{eventfdOf(d)}); err != nil {
				panic(err)
			}
			k.fail["SET_IRQS"] = unix.EIO
		}, unix.EIO, "interrupts"},
		{"gone", func(k *fake, _ *Device) { k.functions[nic].gone = true }, vfio.ErrDeviceGone, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k, d := ready(t, backendGroup)
			tt.change(k, d)
			err := d.Reset(withTimeout(t))
			must.Hold(t, errors.Is(err, tt.want), "error %v, want %v", err, tt.want)
			says(t, err, tt.says, nic)
			clear(k.fail)
			k.functions[nic].gone = false
		})
	}
}

// eventfdOf borrows an eventfd of the device.
func eventfdOf(d *Device) int { return d.alerts.fds[0].FD() }

// TestResetLocked: the kernel keeps the device locked until the context ends.
func TestResetLocked(t *testing.T) {
	k, d := ready(t, backendGroup)
	k.fail["DEVICE_RESET"] = unix.EAGAIN
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	should.Fail(t, d.Reset(ctx), context.DeadlineExceeded, "error")
	ctx, cancel = context.WithCancel(context.Background())
	cancel()
	should.Fail(t, d.Reset(ctx), context.Canceled, "with a context that is over")
}
