package qtest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/ci/kit/qtest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestDMA(t *testing.T) {
	leaktest.Check(t)
	d := open(t, qemutest.Start(t, "igb"), 0)
	r, err := d.IOVARanges()
	if err != nil {
		t.Fatal(err)
	}
	at := (r[0].First + 0x3fffff) &^ 0x1fffff
	mem, err := vfio.AllocMemory(0x2000, vfio.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	b := mem.Bytes()
	b[0], b[0x1fff] = 1, 2
	const both = vfio.DMARead | vfio.DMAWrite
	if err := d.MapDMA(mem, at, both); err != nil {
		t.Fatal(err)
	}
	if b[0] != 1 || b[0x1fff] != 2 {
		t.Errorf("content is %d, %d after mapping", b[0], b[0x1fff])
	}
	b[1] = 3
	other, err := vfio.AllocMemory(0x2000, vfio.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, c := range []struct {
		iova uint64
		want error
	}{
		{at + 0x1000, vfio.ErrIOVAInUse}, {at - 0x1000, vfio.ErrIOVAInUse}, {at + 0x10800, vfio.ErrMisaligned},
		{r[0].Last - 0xfff, vfio.ErrIOVARange}, {0, vfio.ErrIOVARange}, {^uint64(0) - 0xfff, vfio.ErrIOVARange},
	} {
		if err := d.MapDMA(other, c.iova, both); !errors.Is(err, c.want) {
			t.Errorf("map at %#x: %v, want %v", c.iova, err, c.want)
		}
	}
	for _, c := range [][2]uint64{{at, 0x1000}, {at + 0x1000, 0x1000}, {at, 0}} {
		if err := d.UnmapDMA(c[0], c[1]); !errors.Is(err, vfio.ErrNotMapped) {
			t.Errorf("unmap %#x: %v", c, err)
		}
	}
	if err := d.UnmapDMA(at, 0x2000); err != nil {
		t.Fatal(err)
	}
	if b[0] != 1 || b[1] != 3 || b[0x1fff] != 2 {
		t.Errorf("content is %d, %d, %d after unmapping", b[0], b[1], b[0x1fff])
	}
	if err := d.MapDMA(other, at, both); err != nil {
		t.Error(err)
	}
	// A device that is closed gives its memory back, as it was.
	other.Bytes()[7] = 7
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if other.Bytes()[7] != 7 {
		t.Error("content is lost by closing")
	}
}

// TestSharedMemory: two devices have the same memory, each at an address of its own.
func TestSharedMemory(t *testing.T) {
	leaktest.Check(t)
	m := qemutest.Start(t, "igb", "igb")
	a, b := newIGB(t, open(t, m, 0)), newIGB(t, open(t, m, 1))
	for n := range 2 {
		if err := m.Connect(n, m.NetAddr(1-n)); err != nil {
			t.Fatal(err)
		}
	}
	mem, err := vfio.AllocMemory(0x1000, vfio.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	both := func(f func(d *qtest.Device, iova uint64) error) {
		t.Helper()
		for n, d := range []*qtest.Device{a.Device, b.Device} {
			if err := f(d, a.base+0x100000*uint64(n+1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	both(func(d *qtest.Device, iova uint64) error { return d.MapDMA(mem, iova, vfio.DMARead|vfio.DMAWrite) })
	b.linkUp()
	f := frameOf("shared")
	copy(mem.Bytes(), f)
	// b receives into the second half of what a sends from the first half of.
	binary.LittleEndian.PutUint64(b.ram[0x100:], b.base+0x200800)
	a.sendAt(a.base+0x100000, len(f))
	waittest.Until(t, "the frame arrives", func() bool { return b.received() != 0 })
	if !bytes.Equal(mem.Bytes()[0x800:][:len(f)], f) {
		t.Errorf("% x arrived", mem.Bytes()[0x800:][:len(f)])
	}
	both(func(d *qtest.Device, iova uint64) error { return d.UnmapDMA(iova, mem.Size()) })
	if !bytes.Equal(mem.Bytes()[0x800:][:len(f)], f) || mem.FD() < 0 {
		t.Error("the memory is not itself again")
	}
}

// TestFaults: what is not mapped, or not so, the device cannot reach, and that is told.
func TestFaults(t *testing.T) {
	m := qemutest.Start(t, "igb")
	d := open(t, m, 0)
	i := newIGB(t, d)
	if err := m.Fault(t.Context()); err != nil {
		t.Fatal(err)
	}
	mem, err := vfio.AllocMemory(0x1000, vfio.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	at := i.base + 0x100000
	for _, flags := range []vfio.DMAFlags{0, vfio.DMAWrite} {
		if flags != 0 {
			if err := d.MapDMA(mem, at, flags); err != nil {
				t.Fatal(err)
			}
		}
		i.sendAt(at, 60)
		var fault *qtest.FaultError
		if err := m.Fault(t.Context()); !errors.As(err, &fault) || fault.Device != 0 || fault.Address != at || fault.Write {
			t.Errorf("with flags %d: %v", flags, err)
		}
		if err := m.Fault(t.Context()); err != nil {
			t.Errorf("told again: %v", err)
		}
	}
	// What was read once may be in the IOMMU's cache: unmapping takes it out.
	if err := d.UnmapDMA(at, mem.Size()); err != nil {
		t.Fatal(err)
	}
	if err := d.MapDMA(mem, at, vfio.DMARead); err != nil {
		t.Fatal(err)
	}
	i.sendAt(at, 60)
	if err := m.Fault(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.UnmapDMA(at, mem.Size()); err != nil {
		t.Fatal(err)
	}
	i.sendAt(at, 60)
	var fault *qtest.FaultError
	if err := m.Fault(t.Context()); !errors.As(err, &fault) {
		t.Errorf("after unmapping: %v", err)
	}
}
