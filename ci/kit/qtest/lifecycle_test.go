package qtest_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/ci/kit/qtest"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestKilled: what dies is noticed, by all at once, and leaves the memory.
func TestKilled(t *testing.T) {
	leaktest.Check(t)
	m := qemutest.Start(t, "igb")
	d := open(t, m, 0)
	mem, err := vfio.AllocMemory(0x1000, vfio.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	r, err := d.IOVARanges()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.MapDMA(mem, (r[0].First+0xfff)&^0xfff, vfio.DMARead); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(m.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.Lost():
	case <-time.After(timeout):
		t.Fatal("nobody tells of the end")
	}
	mem.Bytes()[0] = 1
	var b [4]byte
	for op, err := range map[string]error{
		"read": d.ReadRegion(0, 0, b[:]), "write": d.WriteRegion(0, 0, b[:]), "config": d.ReadRegion(vfio.RegionConfig, 0, b[:]),
		"reset": d.Reset(t.Context()), "link": m.SetLink(t.Context(), 0, true), "interrupts": d.SetIRQs(vfio.IRQMSIX, 0, []int{1}),
		"unplug": m.Unplug(t.Context(), 0),
	} {
		var exit *qtest.ExitError
		if !errors.Is(err, vfio.ErrDeviceGone) || !errors.As(err, &exit) {
			t.Errorf("%s: %v", op, err)
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := d.ReadRegion(0, 0, b[:]); !errors.Is(err, vfio.ErrClosed) {
		t.Error(err)
	}
	if mem.Bytes()[0] != 1 {
		t.Error("the memory is lost")
	}
}

// TestStopped: QEMU stands still for a while; an access that was given up does not
// disturb those that follow. One that stands still for too long is lost.
func TestStopped(t *testing.T) {
	leaktest.Check(t)
	m, err := qtest.Start(t.Context(), qtest.Options{Devices: []string{"igb"}, QEMU: qemutest.Command(t), Timeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	d := open(t, m, 0)
	write32(t, d, 0, igbRAL, 0x1234)
	read32(t, d, 0, igbRAL)
	send := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(m.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var b [4]byte
	if err := d.ReadRegionContext(ctx, 0, igbRAL, b[:]); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	send(syscall.SIGCONT)
	if got := read32(t, d, 0, igbSTATUS); got == 0x1234 {
		t.Error("the answer is that of an access before")
	}
	if got := read32(t, d, 0, igbRAL); got != 0x1234 {
		t.Errorf("read %#x", got)
	}
	send(syscall.SIGSTOP)
	if err := d.ReadRegion(0, igbRAL, b[:]); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(err, vfio.ErrDeviceGone) {
		t.Error(err)
	}
}

func TestUnplug(t *testing.T) {
	m := qemutest.Start(t, "igb")
	d := open(t, m, 0)
	if err := m.Unplug(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, region := range []int{0, 2, 3, vfio.RegionConfig} {
		if got := read32(t, d, region, 0); got != 0xffffffff {
			t.Errorf("region %d reads %#x", region, got)
		}
	}
	write32(t, d, 0, igbRAL, 1)
	if _, err := vfio.ReadConfig(d); !errors.Is(err, vfio.ErrDeviceGone) {
		t.Error(err)
	}
	if err := d.Reset(t.Context()); !errors.Is(err, vfio.ErrDeviceGone) {
		t.Error(err)
	}
}

// TestOpen: one at a time has a device, and it is reset in between.
func TestOpen(t *testing.T) {
	leaktest.Check(t)
	m := qemutest.Start(t, "igb")
	d := open(t, m, 0)
	if _, err := m.Open(t.Context(), 0); !errors.Is(err, qtest.ErrBusy) {
		t.Error(err)
	}
	for _, n := range []int{-1, 1} {
		if _, err := m.Open(t.Context(), n); err == nil {
			t.Errorf("there is a device %d", n)
		}
		if m.Connect(n, netip.MustParseAddrPort("127.0.0.1:1")) == nil || m.SetLink(t.Context(), n, true) == nil || m.NetAddr(n).IsValid() {
			t.Errorf("device %d has a network side", n)
		}
	}
	if err := m.Connect(0, netip.MustParseAddrPort("192.0.2.1:1")); err == nil {
		t.Error("frames can leave this machine")
	}
	write32(t, d, 0, igbRAL, 0x4321)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var b [4]byte
	if err := d.ReadRegion(0, 0, b[:]); !errors.Is(err, vfio.ErrClosed) {
		t.Error(err)
	}
	if err := d.Reset(t.Context()); !errors.Is(err, vfio.ErrClosed) {
		t.Error(err)
	}
	again := open(t, m, 0)
	if got := read32(t, again, 0, igbRAL); got == 0x4321 {
		t.Error("the device was not reset")
	}
}

// TestAroundTheIOMMU: each device has a share of RAM, and memory that lies there.
func TestAroundTheIOMMU(t *testing.T) {
	leaktest.Check(t)
	m := qemutest.Start(t, "virtio-net-pci,disable-legacy=off", "igb", "virtio-net-pci,iommu_platform=off")
	a, b := open(t, m, 0), open(t, m, 2)
	first, err := a.IOVARanges()
	if err != nil {
		t.Fatal(err)
	}
	second, err := b.IOVARanges()
	if err != nil || len(first) != 1 || len(second) != 1 || first[0].Last >= second[0].First {
		t.Fatal(first, second, err)
	}
	mem, err := vfio.AllocMemory(0x1000, vfio.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	mem.Bytes()[0] = 1
	at := second[0].Last - 0xfff
	if err := a.MapDMA(mem, at, vfio.DMARead); !errors.Is(err, vfio.ErrIOVARange) {
		t.Errorf("memory of another: %v", err)
	}
	if err := b.MapDMA(mem, at, vfio.DMARead); err != nil {
		t.Fatal(err)
	}
	if err := a.MapDMA(mem, first[0].First, vfio.DMARead); !errors.Is(err, vfio.ErrIOVAInUse) {
		t.Errorf("memory that another has: %v", err)
	}
	if err := b.UnmapDMA(at, 0x1000); err != nil || mem.Bytes()[0] != 1 {
		t.Error(err, mem.Bytes()[0])
	}
	newIGB(t, open(t, m, 1)).send(frameOf("behind the IOMMU"))
}
