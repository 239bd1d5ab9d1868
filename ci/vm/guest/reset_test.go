package guest

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/kernel"
)

// TestFunctionReset resets a NIC: its registers are as new, interrupts are
// disconnected, bus mastering is off, mappings are good.
func TestFunctionReset(t *testing.T) {
	d := open(t, alone(t, igbID, false))
	if !d.Info().Resettable {
		t.Fatal("the kernel knows no reset for this NIC")
	}
	m, err := d.MapRegion(vfio.RegionBAR0, 0, 4096)
	if err != nil {
		t.Fatal(err)
	}
	igbInterrupts(t, d)
	fresh := get32(t, d, igbIVAR)
	set32(t, d, igbIVAR, 0x01020304)
	if get32(t, d, igbIVAR) == fresh {
		t.Fatal("the register does not change")
	}
	fd := connect(t, d, vfio.IRQMSIX, 4)
	if err := d.Reset(within(t)); err != nil {
		t.Fatal(err)
	}
	if got := get32(t, d, igbIVAR); got != fresh {
		t.Errorf("register is %#x after the reset, want %#x", got, fresh)
	}
	config, err := vfio.ReadConfig(d)
	if err != nil {
		t.Fatal(err)
	}
	if config.Command&vfio.CommandBusMaster != 0 || config.Command&vfio.CommandMemory == 0 || config.MSIX.Enabled {
		t.Errorf("command %#x, MSI-X on: %v", config.Command, config.MSIX.Enabled)
	}
	if p, err := m.Register32(igbStatus); err != nil || *p == 0xffffffff {
		t.Errorf("the mapping is no good: %v", err)
	}
	// All can be set up again.
	igbInterrupts(t, d)
	if err := d.SetIRQs(vfio.IRQMSIX, 4, []int{fd.FD()}); err != nil {
		t.Fatal(err)
	}
	set32(t, d, igbEICS, 1<<4)
	fires(t, fd)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := d.Reset(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("reset with a context that is over: %v", err)
	}
}

// TestNoReset: a conventional function on the root bus cannot be reset.
func TestNoReset(t *testing.T) {
	e := openEdu(t, alone(t, eduID, false))
	for what, err := range map[string]error{"reset": e.Reset(within(t)), "hot reset": e.HotReset(within(t))} {
		if !errors.Is(err, vfio.ErrNotSupported) {
			t.Errorf("%s: %v", what, err)
		} else {
			t.Log(err)
		}
	}
	if e.read(eduIdent)&0xffff != 0xed {
		t.Error("the device is not well afterwards")
	}
}

// TestHotReset resets the bus behind a port.
func TestHotReset(t *testing.T) {
	e := openEdu(t, alone(t, eduID, true))
	list, err := e.HotResetFunctions()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a hot reset resets %+v", list)
	if len(list) != 1 || !list[0].Owned {
		t.Errorf("expected this function alone, held by us")
	}
	e.busMaster(true)
	fd := connect(t, e, vfio.IRQMSI, 0)
	if err := e.HotReset(within(t)); err != nil {
		t.Fatal(err)
	}
	if c := e.command(); c&vfio.CommandBusMaster != 0 || c&vfio.CommandMemory == 0 {
		t.Errorf("command register %#x", c)
	}
	if id := e.read(eduIdent); id&0xffff != 0xed {
		t.Fatalf("identification %#x after the reset", id)
	}
	e.write(eduRaise, 1)
	quiet(t, fd, "interrupts are disconnected by a reset")
	e.write(eduAck, 1)
	e.busMaster(true)
	fd = connect(t, e, vfio.IRQMSI, 0)
	e.write(eduRaise, 1)
	fires(t, fd)
	mem, iova := e.alloc(eduBufferSize)
	fill(mem.Bytes(), 0xaa)
	e.fetch(iova, 64)
	clear(mem.Bytes())
	e.store(iova, 64)
	if !all(mem.Bytes()[:64], 0xaa) {
		t.Error("DMA does not work after the reset")
	}
}

// TestHotResetTogether: of two functions behind one bridge, a hot reset needs
// both to be held, and tells the other one.
func TestHotResetTogether(t *testing.T) {
	needIOMMU(t)
	f, g := together(t, eduID)
	bind(t, g, "vfio-pci")
	e := openEdu(t, f)
	list, err := e.HotResetFunctions()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a hot reset resets %+v", list)
	other := openEdu(t, g)
	if err := e.HotReset(within(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-other.Alerts():
		if !errors.Is(err, kernel.ErrDeviceFault) {
			t.Errorf("alert %v", err)
		}
		t.Log("the other one was told:", err)
	case <-time.After(5 * time.Second):
		t.Error("the other one was not told")
	}
	for _, x := range []*edu{e, other} {
		if x.read(eduIdent)&0xffff != 0xed {
			t.Errorf("%s is not well after the reset", x.Info().Address)
		}
	}
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
			mem, err := vfio.AllocMemory(4096, vfio.MemoryOptions{Huge: vfio.HugeNever})
			if err != nil {
				t.Fatal(err)
			}
			defer mem.Close()
			if backend() != "noiommu" {
				if err := e.MapDMA(mem, e.choose(mem), vfio.DMAWrite); err != nil {
					t.Fatal(err)
				}
			}
			user := connect(t, e, vfio.IRQReq, 0)
			p := e.register(eduIdent)
			unbound := make(chan error, 1)
			started := time.Now()
			go func() { unbound <- os.WriteFile(pciDevices+"/"+f+"/driver/unbind", []byte(f), 0) }()
			select {
			case err := <-e.Alerts():
				if !errors.Is(err, vfio.ErrDeviceGone) {
					t.Errorf("alert %v", err)
				}
				t.Logf("after %v: %v", time.Since(started).Round(time.Millisecond), err)
			case <-time.After(20 * time.Second):
				t.Fatal("no alert")
			}
			fires(t, user)
			if tt.close {
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			select {
			case err := <-unbound:
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("unbound after %v", time.Since(started).Round(time.Millisecond))
			case <-time.After(20 * time.Second):
				t.Fatal("the unbinding does not end")
			}
			if tt.close {
				return
			}
			if *p != 0xffffffff {
				t.Errorf("a mapped register reads %#x", *p)
			}
			*p = 1 // harms nobody
			var b [4]byte
			if err := e.ReadRegion(vfio.RegionBAR0, 0, b[:]); !errors.Is(err, vfio.ErrDeviceGone) {
				t.Errorf("read: %v", err)
			}
			if err := e.MapDMA(mem, 0, vfio.DMARead); !errors.Is(err, vfio.ErrDeviceGone) {
				t.Errorf("map: %v", err)
			}
		})
	}
}

// TestErrorReport has QEMU report an uncorrectable error of a device behind a
// port: the kernel tells, and the device works on after a reset.
func TestErrorReport(t *testing.T) {
	f := alone(t, rngID, true)
	d := open(t, f)
	user := connect(t, d, vfio.IRQErr, 0)
	monitor("pcie_aer_inject_error fails COMP_TIME")
	select {
	case err := <-d.Alerts():
		if !errors.Is(err, kernel.ErrDeviceFault) {
			t.Errorf("alert %v", err)
		}
		t.Log(err)
	case <-time.After(20 * time.Second):
		t.Fatal("no alert")
	}
	fires(t, user)
	if err := d.Reset(within(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := vfio.ReadConfig(d); err != nil {
		t.Error("the device does not answer after a reset:", err)
	}
}

// TestHotResetGroups: functions on one bus that are in different groups. Each
// has an address space of its own, and still both are known to be ours.
func TestHotResetGroups(t *testing.T) {
	f, g := apart(t, igbID)
	bind(t, g, "vfio-pci")
	d := open(t, f)
	err := d.HotReset(within(t))
	if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), g) {
		t.Fatalf("a function of another group is not ours: %v", err)
	}
	t.Log(err)
	other := open(t, g)
	set32(t, other, igbIVAR, 0x01020304)
	if err := d.HotReset(within(t)); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-other.Alerts():
		t.Log("the other one was told:", err)
	case <-time.After(5 * time.Second):
		t.Error("the other one was not told")
	}
	command(t, other, vfio.CommandMemory)
	if v := get32(t, other, igbIVAR); v != 0 {
		t.Errorf("the other one was not reset: register %#x", v)
	}
}
