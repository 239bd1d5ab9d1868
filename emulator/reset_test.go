package emulator_test

import (
	"context"
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// sheetNames are the registers of the data sheet by block and offset.
func sheetNames() map[[2]uint32]string {
	names := map[[2]uint32]string{}
	for _, r := range append(datasheet.Registers(), datasheet.ProcessorRegisters()...) {
		names[[2]uint32{r.Block, r.Offset}] = r.Name
	}
	return names
}

// place is a word that the host can reach: of a region, at an offset.
type place struct {
	region int
	offset uint64
	name   string // for messages
}

// places finds every word that the device answers for: all of its register
// blocks, whatever stands in them, the interrupt tables and configuration space.
func places(t testing.TB, d vfio.Device) (all []place) {
	t.Helper()
	names := sheetNames()
	for kind, at := range blockOffsets(t, d) {
		size := read32(t, d, at+datasheet.BlockRegSize)
		for offset := uint32(0); offset < size; offset += 4 {
			all = append(all, place{vfio.RegionBAR0, at + uint64(offset), names[[2]uint32{kind, offset}]})
		}
	}
	vectors := uint64(read32(t, d, datasheet.InterruptOffset+datasheet.RegVectors))
	for _, r := range []struct {
		region      int
		start, size uint64
		name        string
	}{
		{vfio.RegionBAR0, datasheet.MSIXTableOffset, vectors * 16, "MSI-X table"},
		{vfio.RegionBAR0, datasheet.MSIXPBAOffset, (vectors + 63) / 64 * 8, "MSI-X pending bits"},
		{vfio.RegionConfig, 0, 4096, "configuration space"},
	} {
		for offset := uint64(0); offset < r.size; offset += 4 {
			all = append(all, place{r.region, r.start + offset, r.name})
		}
	}
	return all
}

func (p place) read(t testing.TB, d vfio.Device) uint32 {
	t.Helper()
	return binary.LittleEndian.Uint32(read(t, d, p.region, p.offset, 4))
}

func (p place) write(t testing.TB, d vfio.Device, v uint32) {
	t.Helper()
	write(t, d, p.region, p.offset, binary.LittleEndian.AppendUint32(nil, v))
}

// values reads every place but those that a reset does not put back, by design.
func values(t testing.TB, d vfio.Device, all []place) map[place]uint32 {
	t.Helper()
	v := map[place]uint32{}
	for _, p := range all {
		switch p.name {
		case "RESET_COUNT": // counts resets
		case "BAD_REGISTER_ACCESSES_LOW": // counts what this function reads
		default:
			v[p] = p.read(t, d)
		}
	}
	return v
}

// neverAllOnes are the registers of which the data sheet says so (SPEC.md 2.1):
// by them a driver knows a device that is gone from one that works.
var neverAllOnes = map[string]bool{"MAGIC": true, "STATUS": true, "ADMIN_STATUS": true, "PROC_STATUS": true}

// TestResetRestoresRegisters writes to all that can be written, with values that
// are refused and values that act, and resets the device: then it reads as one that
// was never touched.
func TestResetRestoresRegisters(t *testing.T) {
	for _, way := range []struct {
		name    string
		reset   func(t *testing.T, d *emulator.Device)
		regions []int // that the reset reaches
	}{
		{"register", func(t *testing.T, d *emulator.Device) { resetByRegister(t, d) }, []int{vfio.RegionBAR0}},
		{"function", func(t *testing.T, d *emulator.Device) {
			must.OK(t, d.Reset(context.Background()))
		}, []int{vfio.RegionBAR0, vfio.RegionConfig}},
		{"function, by configuration space", func(t *testing.T, d *emulator.Device) {
			writeConfig16(t, d, configDevControl, 0x8000)
		}, []int{vfio.RegionBAR0, vfio.RegionConfig}},
		{"departure of a client", func(t *testing.T, d *emulator.Device) {
			must.OK(t, d.Renew(context.Background()))
		}, []int{vfio.RegionBAR0, vfio.RegionConfig}},
	} {
		t.Run(way.name, func(t *testing.T) {
			// A clock that stands still can be compared.
			still := func(o *emulator.Options) { o.Clock = func() time.Duration { return time.Hour } }
			fresh, d := newDevice(t, still), newDevice(t, still)
			powerUp(t, fresh)
			powerUp(t, d)
			all := places(t, d)
			want := values(t, fresh, all)
			defaceRegisters(t, d, all)
			for _, p := range all {
				if p.region == vfio.RegionConfig {
					p.write(t, d, 0xffff7fff) // all but the bit that resets
				}
			}
			writeConfig16(t, d, configPower, 0) // D0, in which registers answer
			powerUp(t, d)
			way.reset(t, d)
			powerUp(t, d)
			waittest.Until(t, "the reset ends", func() bool { return deviceStatus(t, d)&datasheet.DeviceReady != 0 })
			got := values(t, d, all)
			for _, p := range all {
				if got[p] != want[p] && slices.Contains(way.regions, p.region) {
					t.Errorf("region %d, %#x (%s) is %#x after the reset, %#x on a device that is new", p.region, p.offset, p.name, got[p], want[p])
				}
			}
		})
	}
}

// defaceRegisters writes to every word of BAR0 but the register that resets.
func defaceRegisters(t *testing.T, d *emulator.Device, all []place) {
	t.Helper()
	for _, v := range []uint32{0xffffffff, 0xa5a5a5a5, 0x5a5a5a5a, 0x40, 0x80000000, 12, 7, 4, 3, 2, 1, 0, 0xffffffff} {
		for _, p := range all {
			if p.region == vfio.RegionBAR0 && p.name != "CONTROL" {
				p.write(t, d, v)
			}
		}
		for _, p := range all {
			if neverAllOnes[p.name] && p.read(t, d) == 0xffffffff {
				t.Errorf("%s reads all ones after %#x was written everywhere", p.name, v)
			}
		}
	}
}

// TestResetRestoresEntry resets a device with a control program after its entry was
// overwritten: it has the entry of the image that was started again.
func TestResetRestoresEntry(t *testing.T) {
	d := newDevice(t, nil)
	powerUp(t, d)
	p := nicProcessor{t, d}
	p.run(1, encode(t, filter("kept", constant(abi.FilterPass))))
	p.write(datasheet.RegProcessorEntry, 0xffffffff)
	resetByRegister(t, d)
	if got := p.read(datasheet.RegProcessorEntry); got != p.slot(1) || p.read(datasheet.RegActiveSlot) != 1 {
		t.Errorf("PROC_ENTRY is %#x after the reset, the image that runs is at %#x", got, p.slot(1))
	}
	p.write(datasheet.RegProcessorControl, datasheet.ProcessorUseBuiltIn)
	p.write(datasheet.RegProcessorEntry, 0xffffffff)
	resetByRegister(t, d)
	should.Be(t, p.read(datasheet.RegProcessorEntry), 0, "PROC_ENTRY is after a reset without a program")
}
