package guest

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestFault makes the device read and write addresses that are not mapped, not
// mapped any more, and mapped for reading only. Nothing is harmed.
func TestFault(t *testing.T) {
	needIOMMU(t)
	e := openEdu(t, alone(t, eduID, false))
	e.busMaster(true)
	log := kernelLog(t)
	mem, iova := e.alloc(eduBufferSize)
	fill(mem.Bytes(), 0x11)
	e.fetch(iova, 64) // the device holds 0x11 now

	unmapped := iova + 1<<20
	must.Be(t, unmapped&eduMask, unmapped, "IOVA is beyond what the device sends")
	e.store(unmapped, 64)
	e.fetch(unmapped, 64)

	late := must.Get(vfio.AllocMemory(4096, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
	defer late.Close()
	at := e.choose(late)
	for _, flags := range []vfio.DMAFlags{vfio.DMARead | vfio.DMAWrite, vfio.DMARead} {
		fill(late.Bytes(), 0x22)
		fill(mem.Bytes(), 0x11)
		must.OK(t, e.MapDMA(late, at, flags))
		e.fetch(iova, 64)
		e.store(at, 64)
		should.Be(t, !all(late.Bytes(), 0x22), flags&vfio.DMAWrite != 0, "mapped with %#x: written", flags)
		must.OK(t, e.UnmapDMA(at, late.Size()))
		fill(late.Bytes(), 0x33)
		e.store(at, 64)
		should.Hold(t, all(late.Bytes(), 0x33), "the device wrote to memory that is unmapped")
	}
	// What is mapped was not touched, and the device works on.
	should.Hold(t, all(mem.Bytes(), 0x11), "memory was changed that nobody wrote to")
	e.fetch(iova, 64)
	clear(mem.Bytes())
	e.store(iova, 64)
	should.Hold(t, all(mem.Bytes()[:64], 0x11), "DMA does not work after the faults")
	faults := 0
	for _, line := range log() {
		if strings.Contains(line, "fault_addr") || strings.Contains(line, "fault addr") {
			faults++
			t.Log(line)
		}
	}
	should.Hold(t, faults != 0, "the kernel has not seen a fault: was there an IOMMU in between?")
}

// kernelLog returns what the kernel says from now on.
func kernelLog(t *testing.T) func() []string {
	t.Helper()
	f := must.Get(os.OpenFile("/dev/kmsg", os.O_RDONLY|unix.O_NONBLOCK, 0))(t)
	t.Cleanup(func() { f.Close() })
	must.Get(f.Seek(0, io.SeekEnd))(t)
	return func() []string {
		var lines []string
		b := make([]byte, 8192)
		for {
			n, err := unix.Read(int(f.Fd()), b)
			if err != nil || n <= 0 {
				return lines
			}
			_, text, _ := strings.Cut(string(b[:n]), ";")
			lines = append(lines, strings.TrimSpace(text))
		}
	}
}

// TestBadMappings: each refusal says why, and changes nothing.
func TestBadMappings(t *testing.T) {
	needIOMMU(t)
	e := openEdu(t, alone(t, eduID, false))
	mem, iova := e.alloc(8192)
	other := must.Get(vfio.AllocMemory(8192, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
	defer other.Close()
	both := vfio.DMARead | vfio.DMAWrite
	for _, tt := range []struct {
		name string
		err  error
		want error
	}{
		{"in use", e.MapDMA(other, iova, both), vfio.ErrIOVAInUse},
		{"half in use", e.MapDMA(other, iova+4096, both), vfio.ErrIOVAInUse},
		{"misaligned", e.MapDMA(other, iova+1<<20+512, both), vfio.ErrMisaligned},
		{"interrupt window", e.MapDMA(other, 0xfee00000, both), vfio.ErrIOVARange},
		{"beyond the width", e.MapDMA(other, 1<<60, both), vfio.ErrIOVARange},
		{"wraps", e.MapDMA(other, ^uint64(0)-4095, both), vfio.ErrIOVARange},
		{"no access", e.MapDMA(other, iova+1<<20, 0), vfio.ErrNotSupported},
		{"unmap a half", e.UnmapDMA(iova, 4096), vfio.ErrNotMapped},
		{"unmap nothing", e.UnmapDMA(iova+1<<20, 4096), vfio.ErrNotMapped},
	} {
		if !errors.Is(tt.err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, tt.err, tt.want)
			continue
		}
		t.Logf("%s: %v", tt.name, tt.err)
	}
	e.busMaster(true)
	e.store(iova+mem.Size()-64, 64)
}

// TestMappingLimit lowers the kernel's limit of mappings and goes over it.
func TestMappingLimit(t *testing.T) {
	if backend() != "group" {
		t.Skip("only type 1 IOMMUs count mappings")
	}
	const limit = "/sys/module/vfio_iommu_type1/parameters/dma_entry_limit"
	old := must.Get(os.ReadFile(limit))(t)
	write(t, "4", limit)
	t.Cleanup(func() { write(t, strings.TrimSpace(string(old)), limit) })
	e := openEdu(t, alone(t, eduID, false))
	for i := range uint64(5) {
		mem := must.Get(vfio.AllocMemory(4096, vfio.MemoryOptions{Huge: vfio.HugeNever}))(t)
		defer mem.Close()
		var want error
		if i == 4 {
			want = unix.ENOSPC
		}
		should.Fail(t, e.MapDMA(mem, 0x100000+i*4096, vfio.DMARead), want, "mapping %d of 4", i+1)
	}
}

// TestSharedGroup opens both functions of a group: one address space, each with
// its own part.
func TestSharedGroup(t *testing.T) {
	needIOMMU(t)
	f, g := together(t, eduID)
	bind(t, f, "vfio-pci")
	bind(t, g, "vfio-pci")
	first, second := openEdu(t, f), openEdu(t, g)
	for _, e := range []*edu{first, second} {
		ranges := must.Get(e.IOVARanges())(t)
		t.Logf("%s has IOVAs %#x", e.Info().Address, ranges)
	}
	// edu sends 28 bits only: the first function's part begins there, the
	// second's does not.
	first.busMaster(true)
	mem, iova := first.alloc(eduBufferSize)
	fill(mem.Bytes(), 0x77)
	first.fetch(iova, 128)
	err := second.MapDMA(mem, iova, vfio.DMARead)
	should.Hold(t, errors.Is(err, vfio.ErrIOVAInUse) && strings.Contains(err.Error(), f), "the same IOVA for the other function: %v", err)
	t.Log(err)
	should.Fail(t, second.UnmapDMA(iova, mem.Size()), vfio.ErrNotMapped, "the other function unmaps")
	must.OK(t, second.Close())
	clear(mem.Bytes())
	first.store(iova, 128)
	should.Hold(t, all(mem.Bytes()[:128], 0x77), "DMA does not work after the other function was closed")
}
