package emulator_test

import (
	"os"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/mmio"
	"github.com/trapeze-nic/trapeze/vfio"
)

// defaultSRAM is the size of BAR4 of a device whose address does not say it, in bytes.
const defaultSRAM = 8 << 20

func TestRegions(t *testing.T) {
	const rw = vfio.RegionRead | vfio.RegionWrite
	tests := []struct {
		name     string
		mode     emulator.DoorbellMode
		index    int
		size     uint64
		flags    vfio.RegionFlags
		mappable bool
	}{
		{"registers", 0, vfio.RegionBAR0, datasheet.BAR0Size, rw, false},
		{"upper half", 0, 1, 0, 0, false},
		{"mapped doorbells", emulator.DoorbellsMapped, vfio.RegionBAR2, 32 * 4096, rw | vfio.RegionMmap, true},
		{"trapped doorbells", emulator.DoorbellsTrapped, vfio.RegionBAR2, 32 * 4096, rw, false},
		{"SRAM", 0, vfio.RegionBAR4, defaultSRAM, rw | vfio.RegionMmap, true},
		{"no ROM", 0, vfio.RegionROM, 0, 0, false},
		{"configuration space", 0, vfio.RegionConfig, 4096, rw, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDevice(t, func(o *emulator.Options) { o.Doorbells = tt.mode })
			powerUp(t, d)
			info := must.Get(d.Region(tt.index))(t)
			if info.Index != tt.index || info.Size != tt.size || info.Flags != tt.flags || info.Sparse != nil {
				t.Errorf("region %+v", info)
			}
			for _, a := range []struct{ offset, size uint64 }{
				{tt.size, 1}, {0, tt.size + 1}, {tt.size + 1, 0}, {^uint64(0), 2},
			} {
				p := make([]byte, a.size)
				wantError(t, "read outside", d.ReadRegion(tt.index, a.offset, p), vfio.ErrOutOfRange)
				wantError(t, "write outside", d.WriteRegion(tt.index, a.offset, p), vfio.ErrOutOfRange)
			}
			if tt.size == 0 {
				return
			}
			page := uint64(os.Getpagesize())
			m, err := d.MapRegion(tt.index, 0, page)
			if !tt.mappable {
				wantError(t, "map", err, vfio.ErrNotMappable)
				return
			}
			must.OK(t, err)
			defer m.Close()
			_, err = d.MapRegion(tt.index, 0, tt.size+page)
			wantError(t, "map beyond the end", err, vfio.ErrOutOfRange)
			_, err = d.MapRegion(tt.index, ^uint64(0)-page+1, page)
			wantError(t, "map with an offset that wraps", err, vfio.ErrOutOfRange)
			_, err = d.MapRegion(tt.index, 8, page)
			wantError(t, "map misaligned", err, vfio.ErrMisaligned)
			_, err = d.MapRegion(tt.index, 0, 8)
			wantError(t, "map a part of a page", err, vfio.ErrMisaligned)
			_, err = d.MapRegion(tt.index, 0, 0)
			wantError(t, "map nothing", err, vfio.ErrBadSize)
		})
	}
	d := newDevice(t, nil)
	for _, index := range []int{-1, 8, 9, 1 << 30} {
		_, err := d.Region(index)
		wantError(t, "Region", err, vfio.ErrNoSuchRegion)
		wantError(t, "ReadRegion", d.ReadRegion(index, 0, nil), vfio.ErrNoSuchRegion)
		wantError(t, "WriteRegion", d.WriteRegion(index, 0, nil), vfio.ErrNoSuchRegion)
		_, err = d.MapRegion(index, 0, 4096)
		wantError(t, "MapRegion", err, vfio.ErrNoSuchRegion)
	}
}

func TestSRAM(t *testing.T) {
	d := newDevice(t, nil)
	powerUp(t, d)
	page := uint64(os.Getpagesize())
	at := defaultSRAM - page // behind the slots, which are kept
	m := must.Get(d.MapRegion(vfio.RegionBAR4, at, page))(t)
	write(t, d, vfio.RegionBAR4, at+3, []byte("hello"))
	should.Be(t, string(m.Bytes()[3:8]), "hello", "mapped memory")
	copy(m.Bytes()[100:], "world")
	should.Be(t, string(read(t, d, vfio.RegionBAR4, at+100, 5)), "world", "the region")
	resetByRegister(t, d)
	should.Same(t, m.Bytes(), make([]byte, page), "SRAM is not zero after a reset, or the mapping is stale")
	for range 2 {
		should.OK(t, m.Close())
	}
}

// TestMappingOutlivesDevice uses a mapping after the device was closed.
func TestMappingOutlivesDevice(t *testing.T) {
	checkFiles(t)
	d := newDevice(t, func(o *emulator.Options) { o.Doorbells = emulator.DoorbellsMapped })
	powerUp(t, d)
	m := must.Get(d.MapRegion(vfio.RegionBAR2, 0, uint64(os.Getpagesize())))(t)
	closeDevice(t, d)
	p := must.Get(m.Register32(0))(t)
	mmio.Write32(p, 7)
	should.Be(t, mmio.Read32(p), 7)
	should.OK(t, m.Close())
}

func TestMemoryDecoding(t *testing.T) {
	for _, mode := range []emulator.DoorbellMode{emulator.DoorbellsMapped, emulator.DoorbellsTrapped} {
		d := newDevice(t, func(o *emulator.Options) { o.Doorbells = mode })
		dark := func(when string) {
			t.Helper()
			for _, index := range []int{vfio.RegionBAR0, vfio.RegionBAR2, vfio.RegionBAR4} {
				write(t, d, index, 0x210, []byte{1, 2, 3, 4})
				should.Same(t, read(t, d, index, 0x210, 4), []byte{0xff, 0xff, 0xff, 0xff}, "%s: region %d reads", when, index)
			}
		}
		dark("power-on")
		writeConfig16(t, d, configCommand, commandMemory)
		for _, index := range []int{vfio.RegionBAR0, vfio.RegionBAR2, vfio.RegionBAR4} {
			should.Same(t, read(t, d, index, 0x210, 4), make([]byte, 4), "region %d: a write while decoding was off had an effect", index)
		}
		writeConfig16(t, d, configPower, 3)
		dark("D3hot")
		writeConfig16(t, d, configPower, 0)
		should.Be(t, read32(t, d, datasheet.RegMagic), datasheet.Magic, "magic after coming back to D0")
		writeConfig16(t, d, configCommand, 0)
		dark("decoding off")
		should.Be(t, readConfig16(t, d, 0), datasheet.PCIVendorID, "vendor: configuration space answers always")
	}
}

// TestDoorbellsThatNobodyTakes stores to BAR2 what is no doorbell.
func TestDoorbellsThatNobodyTakes(t *testing.T) {
	d := newDevice(t, func(o *emulator.Options) { o.Doorbells = emulator.DoorbellsTrapped })
	powerUp(t, d)
	for _, a := range []struct {
		offset uint64
		size   int
		bad    uint32
	}{
		{0x1000, 4, 1}, // endpoint 1 does not exist
		{0x1004, 4, 1}, // no doorbell
		{0x1000, 1, 1}, {0x1000, 2, 1}, {0x1000, 8, 1}, {0x1002, 4, 1},
		{0x10000, 4, 1}, // completion queue 0 does not exist
		{0x1f000, 4, 1}, // beyond the last page
		{0x2000, 12, 3},
	} {
		before := counter(t, d, datasheet.CounterBadDoorbells)
		write(t, d, vfio.RegionBAR2, a.offset, make([]byte, a.size))
		d.Poll()
		should.Be(t, counter(t, d, datasheet.CounterBadDoorbells)-before, a.bad, "bad doorbells after %d bytes at %#x", a.size, a.offset)
		should.Same(t, read(t, d, vfio.RegionBAR2, a.offset, a.size), make([]byte, a.size), "a trapped doorbell reads")
	}
	mapped := newDevice(t, func(o *emulator.Options) { o.Doorbells = emulator.DoorbellsMapped })
	powerUp(t, mapped)
	write(t, mapped, vfio.RegionBAR2, 0x1000, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12})
	if got := read(t, mapped, vfio.RegionBAR2, 0x1000, 12); got[0] != 1 || got[11] != 12 {
		t.Errorf("mapped doorbells read % x", got)
	}
	write(t, mapped, vfio.RegionBAR2, 0x1001, []byte{9})
	should.Be(t, counter(t, mapped, datasheet.CounterBadDoorbells), 1, "bad doorbells counted")
}
