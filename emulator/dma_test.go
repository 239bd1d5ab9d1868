package emulator_test

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestIOVARanges(t *testing.T) {
	d := newDevice(t, nil)
	got := must.Get(d.IOVARanges())(t)
	want := []vfio.IOVARange{{First: 0x1000, Last: 0xfedfffff}, {First: 0xfef00000, Last: 1<<39 - 1}}
	should.Same(t, got, want, "ranges")
	got[0] = vfio.IOVARange{}
	if again, _ := d.IOVARanges(); !slices.Equal(again, want) {
		t.Error("the caller can change the device's list")
	}
}

func TestMapDMA(t *testing.T) {
	d := newDevice(t, nil)
	mem := newMemory(t, 2*4096)
	const both = vfio.DMARead | vfio.DMAWrite
	closed := newMemory(t, 4096)
	must.OK(t, closed.Close())
	tests := []struct {
		name  string
		mem   *vfio.Memory
		iova  uint64
		flags vfio.DMAFlags
		err   error
	}{
		{"first page", mem, 0x1000, both, nil},
		{"last pages", mem, 1<<39 - 0x2000, vfio.DMARead, nil},
		{"up to the interrupts", mem, 0xfedfe000, vfio.DMAWrite, nil},
		{"behind the interrupts", mem, 0xfef00000, both, nil},
		{"no memory", nil, 0x10000, both, vfio.ErrNoDMAMemory},
		{"closed memory", closed, 0x10000, both, vfio.ErrNoDMAMemory},
		{"misaligned", mem, 0x10800, both, vfio.ErrMisaligned},
		{"address zero", mem, 0, both, vfio.ErrIOVARange},
		{"into the interrupts", mem, 0xfedff000, both, vfio.ErrIOVARange},
		{"the interrupts", mem, 0xfee00000, both, vfio.ErrIOVARange},
		{"over the end", mem, 1<<39 - 0x1000, both, vfio.ErrIOVARange},
		{"wraps", mem, ^uint64(0) - 0xfff, both, vfio.ErrIOVARange},
		{"no rights", mem, 0x10000, 0, vfio.ErrNotSupported},
		{"unknown rights", mem, 0x10000, both | 4, vfio.ErrNotSupported},
		{"again", mem, 0x1000, both, vfio.ErrIOVAInUse},
		{"overlap", mem, 0x2000, both, vfio.ErrIOVAInUse},
		{"next to it", mem, 0x3000, both, nil},
	}
	for _, tt := range tests {
		err := d.MapDMA(tt.mem, tt.iova, tt.flags)
		if tt.err == nil && err != nil {
			t.Errorf("%s: %v", tt.name, err)
		} else if tt.err != nil {
			wantError(t, tt.name, err, tt.err)
		}
	}
	for _, u := range []struct{ iova, size uint64 }{{0x1000, 0x1000}, {0x1000, 0x3000}, {0x2000, 0x1000}, {0x8000, 0x2000}, {0, 0}, {^uint64(0), 2}} {
		wantError(t, "unmap of something else", d.UnmapDMA(u.iova, u.size), vfio.ErrNotMapped)
	}
	should.OK(t, d.UnmapDMA(0x1000, 0x2000))
	wantError(t, "unmap again", d.UnmapDMA(0x1000, 0x2000), vfio.ErrNotMapped)
	should.OK(t, d.MapDMA(mem, 0x1000, both))
}

// TestMemoryGoes: a program takes away the memory from which the device fetches commands.
func TestMemoryGoes(t *testing.T) {
	h := newAdminHost(t, newDevice(t, nil))
	h.nop()
	must.OK(t, unix.Mprotect(h.mem.Bytes(), unix.PROT_NONE))
	h.write(datasheet.RegSQProducer, h.posted+1)
	const health = datasheet.HealthOffset
	if f, v := read32(t, h.d, health+datasheet.RegFault), read32(t, h.d, health+datasheet.RegFaultDetail); f != datasheet.FaultMemory || v != 0 {
		t.Errorf("fault %d, detail %#x, want %d", f, v, datasheet.FaultMemory)
	}
	if s := deviceStatus(t, h.d); s&datasheet.DeviceFatal == 0 {
		t.Errorf("status %#x", s)
	}
	must.OK(t, unix.Mprotect(h.mem.Bytes(), unix.PROT_READ|unix.PROT_WRITE))
}
