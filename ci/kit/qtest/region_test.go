package qtest_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestRegisters(t *testing.T) {
	d := open(t, qemutest.Start(t, "e1000e"), 0)
	for _, v := range []uint32{0, 0x12345678, 0xffffffff} {
		write32(t, d, 0, igbRAL, v)
		if got := read32(t, d, 0, igbRAL); got != v {
			t.Errorf("read %#x, want %#x", got, v)
		}
	}
	// BAR2 is a window in I/O ports: the register's number, then its value.
	write32(t, d, 2, 0, igbRAL)
	if got := read32(t, d, 2, 4); got != 0xffffffff {
		t.Errorf("read %#x through I/O ports", got)
	}
	for region, size := range map[int]uint64{0: 0x20000, 2: 0x20, vfio.RegionConfig: 4096, vfio.RegionROM: 0} {
		var b [8]byte
		if err := d.ReadRegion(region, size-min(size, 4), b[:]); !errors.Is(err, vfio.ErrOutOfRange) {
			t.Errorf("beyond region %d: %v", region, err)
		}
		if err := d.WriteRegion(region, ^uint64(0)-3, b[:4]); !errors.Is(err, vfio.ErrOutOfRange) {
			t.Errorf("beyond region %d: %v", region, err)
		}
	}
	for _, region := range []int{-1, 9} {
		if err := d.ReadRegion(region, 0, nil); !errors.Is(err, vfio.ErrNoSuchRegion) {
			t.Error(err)
		}
	}
	if _, err := d.MapRegion(0, 0, 4096); !errors.Is(err, vfio.ErrNotMappable) {
		t.Error(err)
	}
	// What the back end keeps for itself stays.
	before := read32(t, d, vfio.RegionConfig, 0x10)
	write32(t, d, vfio.RegionConfig, 0x10, 0xffffffff)
	if got := read32(t, d, vfio.RegionConfig, 0x10); got != before {
		t.Errorf("BAR0 is %#x, was %#x", got, before)
	}
	if got := read32(t, d, 3, 0); got != 0xffffffff {
		t.Errorf("the MSI-X table reads %#x", got)
	}
}

// TestReset: the registers are as at the beginning, and still there.
func TestReset(t *testing.T) {
	machine := qemutest.Start(t, "igb", "vmxnet3")
	for n, register := range []uint64{igbRAL, 0x10} { // of vmxnet3, the low address of its shared area
		d := open(t, machine, n)
		bar := n // 0, and 1 of vmxnet3
		before := read32(t, d, bar, register)
		write32(t, d, bar, register, before^0xff00)
		command := read32(t, d, vfio.RegionConfig, vfio.ConfigCommand) | uint32(vfio.CommandBusMaster)
		write32(t, d, vfio.RegionConfig, vfio.ConfigCommand, command)
		if err := d.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := read32(t, d, bar, register); got == before^0xff00 && before != got {
			t.Errorf("device %d: register %#x is still %#x after the reset, was %#x", n, register, got, before)
		}
		if got := read32(t, d, vfio.RegionConfig, vfio.ConfigCommand); got != command {
			t.Errorf("device %d: command register is %#x, was %#x", n, got, command)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	d := open(b, qemutest.Start(b, "igb"), 0)
	var p [4]byte
	for b.Loop() {
		if err := d.ReadRegion(0, igbSTATUS, p[:]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	d := open(b, qemutest.Start(b, "igb"), 0)
	var p [4]byte
	for b.Loop() {
		if err := d.WriteRegion(0, igbRAL, p[:]); err != nil {
			b.Fatal(err)
		}
	}
}
