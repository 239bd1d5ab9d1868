package guest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/kernel"
)

// TestFunctionReset resets a NIC: its registers are as new, interrupts are
// disconnected, bus mastering is off, mappings are good.
func TestFunctionReset(t *testing.T) {
	d := open(t, alone(t, igbID, false))
	must.Hold(t, d.Info().Resettable, "the kernel knows no reset for this NIC")
	m := must.Get(d.MapRegion(vfio.RegionBAR0, 0, 4096))(t)
	igbInterrupts(t, d)
	fresh := get32(t, d, igbIVAR)
	set32(t, d, igbIVAR, 0x01020304)
	must.Hold(t, get32(t, d, igbIVAR) != fresh, "the register does not change")
	fd := connect(t, d, vfio.IRQMSIX, 4)
	must.OK(t, d.Reset(within(t)))
	should.Be(t, get32(t, d, igbIVAR), fresh, "register is after the reset")
	config := must.Get(vfio.ReadConfig(d))(t)
	if config.Command&vfio.CommandBusMaster != 0 || config.Command&vfio.CommandMemory == 0 || config.MSIX.Enabled {
		t.Errorf("command %#x, MSI-X on: %v", config.Command, config.MSIX.Enabled)
	}
	p, err := m.Register32(igbStatus)
	should.Hold(t, err == nil && *p != 0xffffffff, "the mapping is no good: %v", err)
	// All can be set up again.
	igbInterrupts(t, d)
	must.OK(t, d.SetIRQs(vfio.IRQMSIX, 4, []int{fd.FD()}))
	set32(t, d, igbEICS, 1<<4)
	fires(t, fd)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	should.Fail(t, d.Reset(ctx), context.Canceled, "reset with a context that is over")
}

// TestNoReset: a conventional function on the root bus cannot be reset.
func TestNoReset(t *testing.T) {
	e := openEdu(t, alone(t, eduID, false))
	if err := e.Reset(within(t)); !errors.Is(err, vfio.ErrNotSupported) {
		t.Error(err)
	} else {
		t.Log(err)
	}
	should.Be(t, e.read(eduIdent)&0xffff, 0xed, "the device is not well afterwards")
}

// TestUnbindHeld unbinds a device while it is open. The kernel asks for it, and
// the unbinding ends when it is closed.
func TestUnbindHeld(t *testing.T) {
	for _, tt := range []struct {
		name  string
		close bool
	}{{"the holder closes it", true}, {"the holder does nothing", false}} {
		t.Run(tt.name, func(t *testing.T) {
			f := alone(t, eduID, false)
			e := openEdu(t, f)
			mem := must.Get(vfio.AllocMemory(4096, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
			defer mem.Close()
			if backend() != "noiommu" {
				must.OK(t, e.MapDMA(mem, e.choose(mem), vfio.DMAWrite))
			}
			p := e.register(eduIdent)
			unbound := make(chan error, 1)
			started := time.Now()
			go func() { unbound <- os.WriteFile(pciDevices+"/"+f+"/driver/unbind", []byte(f), 0) }()
			select {
			case err := <-e.Alerts():
				should.Fail(t, err, vfio.ErrDeviceGone, "alert")
				t.Logf("after %v: %v", time.Since(started).Round(time.Millisecond), err)
			case <-time.After(20 * time.Second):
				t.Fatal("no alert")
			}
			if tt.close {
				should.OK(t, e.Close())
			}
			select {
			case err := <-unbound:
				must.OK(t, err)
				t.Logf("unbound after %v", time.Since(started).Round(time.Millisecond))
			case <-time.After(20 * time.Second):
				t.Fatal("the unbinding does not end")
			}
			if tt.close {
				return
			}
			should.Be(t, *p, 0xffffffff, "a mapped register reads")
			*p = 1 // harms nobody
			var b [4]byte
			should.Fail(t, e.ReadRegion(vfio.RegionBAR0, 0, b[:]), vfio.ErrDeviceGone)
			should.Fail(t, e.MapDMA(mem, 0, vfio.DMARead), vfio.ErrDeviceGone, "map")
		})
	}
}

// TestErrorReport makes QEMU report an uncorrectable error of a device behind a
// port: the kernel tells, and the device works on after a reset.
func TestErrorReport(t *testing.T) {
	f := alone(t, rngID, true)
	d := open(t, f)
	monitor("pcie_aer_inject_error fails COMP_TIME")
	select {
	case err := <-d.Alerts():
		should.Fail(t, err, kernel.ErrDeviceFault, "alert")
		t.Log(err)
	case <-time.After(20 * time.Second):
		t.Fatal("no alert")
	}
	must.OK(t, d.Reset(within(t)))
	if _, err := vfio.ReadConfig(d); err != nil {
		t.Error("the device does not answer after a reset:", err)
	}
}
