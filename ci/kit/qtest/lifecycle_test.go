package qtest_test

import (
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/ci/kit/qtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestKilled: what dies is noticed, by all at once, and leaves the memory.
func TestKilled(t *testing.T) {
	leaktest.Check(t)
	m := qemutest.Start(t, "igb")
	d := open(t, m, 0)
	mem := must.Get(vfio.AllocMemory(0x1000, vfio.MemoryOptions{}))(t)
	defer mem.Close()
	r := must.Get(d.IOVARanges())(t)
	must.OK(t, d.MapDMA(mem, (r[0].First+0xfff)&^0xfff, vfio.DMARead))
	must.OK(t, syscall.Kill(m.PID(), syscall.SIGKILL))
	var b [4]byte
	waittest.Until(t, "QEMU's end is noticed", func() bool { return d.ReadRegion(0, 0, b[:]) != nil })
	mem.Bytes()[0] = 1
	for op, err := range map[string]error{
		"read": d.ReadRegion(0, 0, b[:]), "write": d.WriteRegion(0, 0, b[:]), "config": d.ReadRegion(vfio.RegionConfig, 0, b[:]),
		"reset": d.Reset(t.Context()), "link": m.SetLink(0, true), "interrupts": d.SetIRQs(vfio.IRQMSIX, 0, []int{1}),
		"unplug": m.Unplug(0),
	} {
		var exit *qtest.ExitError
		should.Hold(t, errors.Is(err, vfio.ErrDeviceGone) && errors.As(err, &exit), "%s: %v", op, err)
	}
	should.OK(t, m.Close())
	should.Fail(t, d.ReadRegion(0, 0, b[:]), vfio.ErrClosed)
	should.Be(t, mem.Bytes()[0], 1, "the memory is lost")
}

// TestStopped: a QEMU that stands still for too long is lost.
func TestStopped(t *testing.T) {
	leaktest.Check(t)
	m := must.Get(qtest.Start(t.Context(), qtest.Options{Devices: []string{"igb"}, QEMU: qemutest.Command(t), Timeout: time.Second}))(t)
	defer m.Close()
	d := open(t, m, 0)
	must.OK(t, syscall.Kill(m.PID(), syscall.SIGSTOP))
	var b [4]byte
	err := d.ReadRegion(0, igbRAL, b[:])
	should.Hold(t, errors.Is(err, os.ErrDeadlineExceeded) && errors.Is(err, vfio.ErrDeviceGone), "%+v", err)
}

// TestReset: the registers are as at the beginning, and still there, also after the device was opened again.
func TestReset(t *testing.T) {
	m := qemutest.Start(t, "igb")
	d := open(t, m, 0)
	should.Refuse(m.Open(0))(t, qtest.ErrBusy, "opened twice")
	for range 2 {
		before := read32(t, d, 0, igbRAL)
		write32(t, d, 0, igbRAL, before^0xff00)
		command := read32(t, d, vfio.RegionConfig, vfio.ConfigCommand) | uint32(vfio.CommandBusMaster)
		write32(t, d, vfio.RegionConfig, vfio.ConfigCommand, command)
		must.OK(t, d.Reset(t.Context()))
		should.Be(t, read32(t, d, 0, igbRAL), before, "the register is after the reset")
		should.Be(t, read32(t, d, vfio.RegionConfig, vfio.ConfigCommand), command, "the command register")
		must.OK(t, d.Close())
		d = open(t, m, 0)
	}
}
