package emulator_test

import (
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestIOVARanges(t *testing.T) {
	d := newDevice(t, nil)
	got, err := d.IOVARanges()
	if err != nil {
		t.Fatal(err)
	}
	want := []vfio.IOVARange{{First: 0x1000, Last: 0xfedfffff}, {First: 0xfef00000, Last: 1<<39 - 1}}
	if !slices.Equal(got, want) {
		t.Errorf("ranges %x", got)
	}
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
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
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
	if err := d.UnmapDMA(0x1000, 0x2000); err != nil {
		t.Error(err)
	}
	wantError(t, "unmap again", d.UnmapDMA(0x1000, 0x2000), vfio.ErrNotMapped)
	if err := d.MapDMA(mem, 0x1000, both); err != nil {
		t.Errorf("map what was unmapped: %v", err)
	}
}

// TestDMAStops has the device fetch commands from memory that is out of reach.
func TestDMAStops(t *testing.T) {
	tests := map[string]func(h *adminHost){
		"unmapped": func(h *adminHost) {
			if err := h.d.UnmapDMA(hostBase, h.mem.Size()); err != nil {
				h.t.Fatal(err)
			}
		},
		"bus mastering off": func(h *adminHost) { writeConfig16(h.t, h.d, configCommand, commandMemory) },
		"not to be read": func(h *adminHost) {
			if err := h.d.UnmapDMA(hostBase, h.mem.Size()); err != nil {
				h.t.Fatal(err)
			}
			if err := h.d.MapDMA(h.mem, hostBase, vfio.DMAWrite); err != nil {
				h.t.Fatal(err)
			}
		},
	}
	for name, stop := range tests {
		t.Run(name, func(t *testing.T) {
			h := newAdminHost(t, newDevice(t, nil))
			h.nop()
			stop(h)
			// The address of the next command.
			at := uint32(hostBase + h.posted*datasheet.AdminEntrySize)
			h.write(datasheet.RegSQProducer, h.posted+1)
			const health = datasheet.HealthOffset
			if f, v := read32(t, h.d, health+datasheet.RegFault), read32(t, h.d, health+datasheet.RegFaultDetail); f != datasheet.FaultAdminDMA || v != at {
				t.Errorf("fault %d, detail %#x, want %d, %#x", f, v, datasheet.FaultAdminDMA, at)
			}
			if n := counter(t, h.d, datasheet.CounterDMAFaults); n != 1 {
				t.Errorf("%d DMA faults counted", n)
			}
			if s := deviceStatus(t, h.d); s&datasheet.DeviceFatal == 0 {
				t.Errorf("status %#x", s)
			}
		})
	}
}

// TestMemoryGoes: a program takes away the memory from which the device fetches commands.
func TestMemoryGoes(t *testing.T) {
	h := newAdminHost(t, newDevice(t, nil))
	h.nop()
	if err := unix.Mprotect(h.mem.Bytes(), unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	h.write(datasheet.RegSQProducer, h.posted+1)
	const health = datasheet.HealthOffset
	if f, v := read32(t, h.d, health+datasheet.RegFault), read32(t, h.d, health+datasheet.RegFaultDetail); f != datasheet.FaultMemory || v != 0 {
		t.Errorf("fault %d, detail %#x, want %d", f, v, datasheet.FaultMemory)
	}
	if s := deviceStatus(t, h.d); s&datasheet.DeviceFatal == 0 {
		t.Errorf("status %#x", s)
	}
	if err := unix.Mprotect(h.mem.Bytes(), unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatal(err)
	}
}
