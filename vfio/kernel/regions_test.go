package kernel

import (
	"bytes"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestRegion(t *testing.T) {
	_, d := ready(t, backendCdev)
	all := vfio.RegionRead | vfio.RegionWrite | vfio.RegionMmap
	for index, want := range map[int]vfio.RegionInfo{
		0: {Index: 0, Size: 64 << 10, Flags: all},
		1: {Index: 1},
		2: {Index: 2, Size: 64 << 10, Flags: all, Sparse: []vfio.Area{{Offset: 0, Size: 0x4000}, {Offset: 0x6000, Size: 0xa000}}},
		4: {Index: 4, Size: 256, Flags: vfio.RegionRead | vfio.RegionWrite},
		7: {Index: 7, Size: 4096, Flags: vfio.RegionRead | vfio.RegionWrite},
		8: {Index: 8},
	} {
		got := must.Get(d.Region(index))(t)
		should.Be(t, cmp.Diff(want, got), "")
	}
	info := must.Get(d.Region(2))(t)
	info.Sparse[0].Size = 1 // the caller's own copy
	should.Be(t, must.Get(d.Region(2))(t).Sparse[0].Size, 0x4000)
}

func TestRegionAccess(t *testing.T) {
	forEachBackend(t, func(t *testing.T, k *fake, d *Device) {
		want := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
		must.OK(t, d.WriteRegion(0, 0x100, want))
		got := make([]byte, len(want))
		must.OK(t, d.ReadRegion(0, 0x100, got))
		should.Hold(t, bytes.Equal(got, want) && bytes.Equal(k.functions[nic].regions[0].memory[0x100:0x109], want),
			"wrote % x, read % x", want, got)
		k.functions[nic].regions[0].broken = unix.EIO
		err := d.ReadRegion(0, 0, got)
		should.Fail(t, err, unix.EIO, "asleep")
		says(t, err, "memory decode is off", "trapeze doctor", nic)
	})
}

func TestBadRegionAccess(t *testing.T) {
	k, d := ready(t, backendGroup)
	k.functions[nic].regions[4].flags = 0
	d.regions[4].Flags = 0
	for _, tt := range []struct {
		name   string
		index  int
		offset uint64
		size   int
		want   error
	}{
		{"negative", -1, 0, 4, vfio.ErrNoSuchRegion},
		{"beyond the last", 9, 0, 4, vfio.ErrNoSuchRegion},
		{"one that is not there", 1, 0, 4, vfio.ErrOutOfRange},
		{"behind the end", 0, 64<<10 + 1, 0, vfio.ErrOutOfRange},
		{"over the end", 0, 64<<10 - 2, 4, vfio.ErrOutOfRange},
		{"wraps", 0, ^uint64(0) - 1, 4, vfio.ErrOutOfRange},
		{"no access", 4, 0, 4, vfio.ErrNotSupported},
		{"nothing at the end", 0, 64 << 10, 0, nil},
	} {
		b := make([]byte, tt.size)
		should.Fail(t, d.ReadRegion(tt.index, tt.offset, b), tt.want, "%s", tt.name)
		should.Fail(t, d.WriteRegion(tt.index, tt.offset, b), tt.want, "%s: write", tt.name)
	}
}

func TestMapRegion(t *testing.T) {
	page := uint64(os.Getpagesize())
	if page != 4096 {
		t.Skip("the regions here are laid out for pages of 4096 bytes")
	}
	forEachBackend(t, func(t *testing.T, k *fake, d *Device) {
		k.functions[nic].regions[0].memory[0x2004] = 0x42
		m, err := d.MapRegion(0, 0x2000, 0x1000)
		must.OK(t, err)
		if p, err := m.Register32(4); err != nil || *p != 0x42 {
			t.Errorf("mapped register: %v", err)
		}
		should.OK(t, m.Close())
		for _, tt := range []struct {
			name         string
			index        int
			offset, size uint64
			want         error
		}{
			{"all of it", 0, 0, 0x10000, nil},
			{"the end", 0, 0xf000, 0x1000, nil},
			{"nothing", 0, 0, 0, vfio.ErrBadSize},
			{"over the end", 0, 0xf000, 0x2000, vfio.ErrOutOfRange},
			{"wraps", 0, ^uint64(0) - 0xfff, 0x2000, vfio.ErrOutOfRange},
			{"misaligned", 0, 4, 0x1000, vfio.ErrMisaligned},
			{"misaligned size", 0, 0, 100, vfio.ErrMisaligned},
			{"an area", 2, 0x6000, 0xa000, nil},
			{"a part of an area", 2, 0x1000, 0x1000, nil},
			{"the vector table", 2, 0x4000, 0x1000, vfio.ErrNotMappable},
			{"over the vector table", 2, 0, 0x10000, vfio.ErrNotMappable},
			{"into the vector table", 2, 0x3000, 0x2000, vfio.ErrNotMappable},
			{"cannot be mapped", 4, 0, 0x1000, vfio.ErrNotMappable},
			{"configuration space", 7, 0, 0x1000, vfio.ErrNotMappable},
			{"not there", 1, 0, 0x1000, vfio.ErrOutOfRange},
			{"no such region", 9, 0, 0x1000, vfio.ErrNoSuchRegion},
		} {
			m, err := d.MapRegion(tt.index, tt.offset, tt.size)
			should.Fail(t, err, tt.want, "%s", tt.name)
			if err == nil {
				should.Be(t, len(m.Bytes()), int(tt.size), "%s: bytes", tt.name)
				should.OK(t, m.Close())
			}
		}
		_, err = d.MapRegion(2, 0x4000, 0x1000)
		says(t, err, "0x0 to 0x3fff 0x6000 to 0xffff", "MSI-X")
	})
}

// TestAreasThatTouch count as one.
func TestAreasThatTouch(t *testing.T) {
	r := region{RegionInfo: vfio.RegionInfo{Size: 0x4000, Flags: vfio.RegionMmap,
		Sparse: []vfio.Area{{Offset: 0, Size: 0x1000}, {Offset: 0x1000, Size: 0x1000}, {Offset: 0x3000, Size: 0x1000}}}}
	for _, tt := range []struct {
		offset, size uint64
		want         error
	}{{0, 0x2000, nil}, {0x1000, 0x1000, nil}, {0, 0x3000, vfio.ErrNotMappable}, {0x2000, 0x2000, vfio.ErrNotMappable}} {
		should.Fail(t, r.CheckMap(tt.offset, tt.size), tt.want, "%#x bytes at %#x", tt.size, tt.offset)
	}
}

// TestSmallRegion: of a BAR that is smaller than a page the page can be mapped.
func TestSmallRegion(t *testing.T) {
	k, h := openFake(t, machine(t))
	k.functions[nic].regions[4].flags = readWriteMmap
	d := mustOpen(t, h, "pci:"+nic)
	m := must.Get(d.MapRegion(4, 0, uint64(os.Getpagesize())))(t)
	should.Be(t, len(m.Bytes()), os.Getpagesize())
}

// TestMemoryDecode: it is on before a region is mapped and off after Close;
// bus mastering is off before memory is unmapped.
func TestMemoryDecode(t *testing.T) {
	forEachBackend(t, func(t *testing.T, k *fake, d *Device) {
		f := k.functions[nic]
		command := func(v uint16) {
			must.OK(t, d.WriteRegion(vfio.RegionConfig, vfio.ConfigCommand, []byte{byte(v), byte(v >> 8)}))
		}
		command(vfio.CommandINTxDisable)
		m := must.Get(d.MapRegion(0, 0, 4096))(t) // the fake refuses it while decode is off
		should.Be(t, f.command(), vfio.CommandMemory|vfio.CommandINTxDisable, "command register")
		command(vfio.CommandMemory | vfio.CommandBusMaster)
		if d.Info().Backend != backendNoIOMMU {
			must.OK(t, d.MapDMA(alloc(t, 4096), 0x1000, both))
		}
		k.steps()
		must.OK(t, d.Close())
		if f.command() != 0 || len(f.busMaster) != 1 || f.busMaster[0] {
			t.Errorf("command register %#x, bus mastering when closed %v", f.command(), f.busMaster)
		}
		should.Hold(t, m.Bytes() == nil, "the mapping does not know that it is closed")
		order := []string{"SET_IRQS", "write device", "UNMAP_DMA", "munmap", "write device", "close device"}
		switch d.Info().Backend {
		case backendCdev:
			order[2] = "IOAS_UNMAP"
		case backendNoIOMMU:
			order = append(order[:2:2], order[3:]...)
		}
		inOrder(t, k.steps(), order)
	})
}

// inOrder fails the test unless calls has all of want, in that order.
func inOrder(t *testing.T, calls, want []string) {
	t.Helper()
	rest := want
	for _, c := range calls {
		if len(rest) > 0 && c == rest[0] {
			rest = rest[1:]
		}
	}
	should.Hold(t, len(rest) == 0, "calls %q do not have %q in order", calls, want)
}
