package guest

import (
	"encoding/binary"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/mmio"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/kernel"
)

// Registers of QEMU's "edu" device in BAR0 (QEMU documentation, specs/edu).
const (
	eduIdent     = 0x00 // 0xRRrr00ed
	eduLiveness  = 0x04 // reads as the complement of what was written
	eduFactorial = 0x08
	eduStatus    = 0x20
	eduRaised    = 0x24
	eduRaise     = 0x60
	eduAck       = 0x64
	eduDMASource = 0x80
	eduDMATarget = 0x88
	eduDMACount  = 0x90
	eduDMAStart  = 0x98

	eduComputing    = 0x01
	eduBuffer       = 0x40000 // where the device's own 4 KiB are
	eduBufferSize   = 4096
	eduRun          = 0x01
	eduFromDevice   = 0x02
	eduThenRaise    = 0x04
	eduDMAInterrupt = 0x100

	// eduMask: the device sends 28 address bits.
	eduMask = 1<<28 - 1
)

// edu is an open edu device with its registers mapped.
type edu struct {
	*kernel.Device
	t    *testing.T
	bar0 *vfio.Mapping
}

func openEdu(t *testing.T, function string) *edu {
	t.Helper()
	return newEdu(t, open(t, function))
}

func newEdu(t *testing.T, d *kernel.Device) *edu {
	t.Helper()
	info := must.Get(d.Region(vfio.RegionBAR0))(t)
	m := must.Get(d.MapRegion(vfio.RegionBAR0, 0, info.Size))(t)
	return &edu{Device: d, t: t, bar0: m}
}

func (e *edu) register(offset uint64) *uint32 {
	e.t.Helper()
	return must.Get(e.bar0.Register32(offset))(e.t)
}

func (e *edu) read(offset uint64) uint32 {
	e.t.Helper()
	return mmio.Read32(e.register(offset))
}

func (e *edu) write(offset uint64, v uint32) {
	e.t.Helper()
	mmio.Write32(e.register(offset), v)
}

// busMaster turns bus mastering on or off.
func (e *edu) busMaster(on bool) {
	e.t.Helper()
	v := e.command() &^ vfio.CommandBusMaster
	if on {
		v |= vfio.CommandBusMaster
	}
	must.OK(e.t, e.WriteRegion(vfio.RegionConfig, vfio.ConfigCommand, binary.LittleEndian.AppendUint16(nil, v)))
}

func (e *edu) command() uint16 {
	e.t.Helper()
	var b [2]byte
	must.OK(e.t, e.ReadRegion(vfio.RegionConfig, vfio.ConfigCommand, b[:]))
	return binary.LittleEndian.Uint16(b[:])
}

// alloc returns memory that the device can reach, and its bus address.
func (e *edu) alloc(size uint64) (*vfio.Memory, uint64) {
	e.t.Helper()
	options := vfio.MemoryOptions{}
	if backend() == "noiommu" {
		options.Huge = vfio.HugeRequire
	}
	mem := must.Get(vfio.AllocMemory(size, options))(e.t)
	e.t.Cleanup(func() { mem.Close() })
	iova := e.choose(mem)
	must.OK(e.t, e.MapDMA(mem, iova, vfio.DMARead|vfio.DMAWrite))
	e.t.Cleanup(func() {
		if err := e.UnmapDMA(iova, mem.Size()); err != nil && e.t.Context().Err() == nil {
			e.t.Error(err)
		}
	})
	return mem, iova
}

// choose returns a bus address for memory: the device's own choice without an
// IOMMU, else the first that is free.
func (e *edu) choose(mem *vfio.Memory) uint64 {
	e.t.Helper()
	if backend() == "noiommu" {
		return must.Get(e.PhysicalAddress(mem))(e.t)
	}
	ranges := must.Get(e.IOVARanges())(e.t)
	a := vfio.NewIOVAAllocator(ranges, 4096)
	for {
		iova := must.Get(a.Alloc(mem.Size(), mem.PageSize()))(e.t)
		if e.free(mem, iova) {
			return iova
		}
	}
}

// free reports whether nothing is mapped at iova.
func (e *edu) free(mem *vfio.Memory, iova uint64) bool {
	if e.MapDMA(mem, iova, vfio.DMARead) != nil {
		return false
	}
	return e.UnmapDMA(iova, mem.Size()) == nil
}

// start has the device copy count bytes.
func (e *edu) start(source, target uint64, count, command uint32) {
	e.t.Helper()
	e.write(eduDMASource, uint32(source))
	e.write(eduDMATarget, uint32(target))
	e.write(eduDMACount, count)
	mmio.ToDevice()
	e.write(eduDMAStart, command|eduRun)
}

// copy has the device copy count bytes and waits for it by polling.
func (e *edu) copy(source, target uint64, count, command uint32) {
	e.t.Helper()
	e.start(source, target, count, command)
	waittest.Until(e.t, "the end of a DMA transfer", func() bool { return e.read(eduDMAStart)&eduRun == 0 })
	mmio.FromDevice()
}

func (e *edu) fetch(iova uint64, count uint32) { e.t.Helper(); e.copy(iova, eduBuffer, count, 0) }

func (e *edu) store(iova uint64, count uint32) {
	e.t.Helper()
	e.copy(eduBuffer, iova, count, eduFromDevice)
}
