package kernel

import (
	"errors"
	"maps"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

const both = vfio.DMARead | vfio.DMAWrite

func TestMapDMA(t *testing.T) {
	for _, b := range backends[:2] {
		t.Run(b, func(t *testing.T) {
			k, d := ready(t, b)
			mem := alloc(t, 8192)
			must.OK(t, d.MapDMA(mem, 0x10000, both))
			must.OK(t, d.MapDMA(mem, 0x12000, vfio.DMARead)) // the same memory, right behind
			got := k.mapped()
			should.Hold(t, maps.Equal(got, map[uint64]uint64{0x10000: 0x2000, 0x12000: 0x2000}), "the kernel has mapped %#x", got)
			must.OK(t, d.UnmapDMA(0x10000, 8192))
			got = k.mapped()
			should.Hold(t, maps.Equal(got, map[uint64]uint64{0x12000: 0x2000}), "the kernel has mapped %#x", got)
			must.OK(t, d.MapDMA(mem, 0x10000, vfio.DMAWrite)) // free again
		})
	}
}

// TestBadMapDMA: what is refused changes nothing.
func TestBadMapDMA(t *testing.T) {
	for _, b := range backends[:2] {
		t.Run(b, func(t *testing.T) {
			k, d := ready(t, b)
			mem, gone := alloc(t, 8192), alloc(t, 4096)
			must.OK(t, gone.Close())
			must.OK(t, d.MapDMA(mem, 0x10000, both))
			before := k.mapped()
			const ranges = "usable: [0x0 to 0xfedfffff 0xfef00000 to 0x7fffffffff]"
			for _, tt := range []struct {
				name string
				err  error
				want error
				says string
			}{
				{"in use", d.MapDMA(mem, 0x10000, both), vfio.ErrIOVAInUse, "0x2000 bytes are mapped at 0x10000"},
				{"first half in use", d.MapDMA(mem, 0x11000, both), vfio.ErrIOVAInUse, ""},
				{"second half in use", d.MapDMA(mem, 0xf000, both), vfio.ErrIOVAInUse, ""},
				{"misaligned", d.MapDMA(mem, 0x20001, both), vfio.ErrMisaligned, "multiples of 0x1000"},
				{"begins outside", d.MapDMA(mem, 0xfee00000, both), vfio.ErrIOVARange, ranges},
				{"ends outside", d.MapDMA(mem, 0xfedff000, both), vfio.ErrIOVARange, ranges},
				{"beyond the width", d.MapDMA(mem, 1<<39, both), vfio.ErrIOVARange, ranges},
				{"wraps", d.MapDMA(mem, ^uint64(0)-4095, both), vfio.ErrIOVARange, ranges},
				{"no access", d.MapDMA(mem, 0x20000, 0), vfio.ErrNotSupported, "DMARead, DMAWrite or both"},
				{"unknown access", d.MapDMA(mem, 0x20000, 8), vfio.ErrNotSupported, ""},
				{"closed memory", d.MapDMA(gone, 0x20000, both), vfio.ErrNoDMAMemory, ""},
				{"no memory", d.MapDMA(nil, 0x20000, both), vfio.ErrNoDMAMemory, ""},
				{"unmap a half", d.UnmapDMA(0x10000, 4096), vfio.ErrNotMapped, ""},
				{"unmap more", d.UnmapDMA(0x10000, 16384), vfio.ErrNotMapped, ""},
				{"unmap the middle", d.UnmapDMA(0x11000, 4096), vfio.ErrNotMapped, ""},
				{"unmap nothing", d.UnmapDMA(0x20000, 4096), vfio.ErrNotMapped, ""},
			} {
				if !errors.Is(tt.err, tt.want) {
					t.Errorf("%s: %v, want %v", tt.name, tt.err, tt.want)
					continue
				}
				says(t, tt.err, tt.says, nic)
			}
			got := k.mapped()
			should.Hold(t, maps.Equal(got, before), "the kernel has mapped %#x, before %#x", got, before)
		})
	}
}

// TestKernelRefusesMap: what only the kernel knows.
func TestKernelRefusesMap(t *testing.T) {
	for _, tt := range []struct {
		fails error
		want  error
		says  []string
	}{
		{unix.ENOMEM, unix.ENOMEM, []string{"8192 bytes are wanted"}},
		{unix.ENOSPC, unix.ENOSPC, []string{"0 mappings are in use", "map larger pieces"}},
		{unix.EEXIST, vfio.ErrIOVAInUse, nil},
		{unix.EINVAL, vfio.ErrIOVARange, []string{"usable: [0x0 to"}},
		{unix.EFAULT, unix.EFAULT, []string{"cannot be pinned"}},
		{unix.EIO, unix.EIO, nil},
	} {
		for backend, step := range map[string]string{backendGroup: "MAP_DMA", backendCdev: "IOAS_MAP"} {
			t.Run(tt.fails.Error()+"/"+backend, func(t *testing.T) {
				k, d := ready(t, backend)
				k.fail[step] = tt.fails
				err := d.MapDMA(alloc(t, 8192), 0x10000, both)
				must.Hold(t, errors.Is(err, tt.want) && errors.Is(err, tt.fails), "error %v", err)
				says(t, err, append(tt.says, "map 0x2000 bytes at IOVA 0x10000", nic)...)
				delete(k.fail, step)
				should.OK(t, d.MapDMA(alloc(t, 8192), 0x10000, both))
			})
		}
	}
}

// TestMemlockHint: the limit, what is locked, and what it should be.
func TestMemlockHint(t *testing.T) {
	var old unix.Rlimit
	must.OK(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old))
	must.OK(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 65536, Max: old.Max}))
	t.Cleanup(func() { should.OK(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old)) })
	k, d := ready(t, backendGroup)
	k.fail["MAP_DMA"] = unix.ENOMEM
	err := d.MapDMA(alloc(t, 1<<20), 0x100000, both)
	says(t, err, "1048576 bytes are wanted", "196608 are locked", "at most 65536", "ulimit -l 1216", "LimitMEMLOCK=1216K")
}

// TestUnmapFails: what the kernel does not know is forgotten, the rest is kept.
func TestUnmapFails(t *testing.T) {
	k, d := ready(t, backendCdev)
	mem := alloc(t, 4096)
	must.OK(t, d.MapDMA(mem, 0x10000, both))
	k.fail["IOAS_UNMAP"] = unix.EBUSY
	should.Fail(t, d.UnmapDMA(0x10000, 4096), unix.EBUSY, "error")
	should.Fail(t, d.MapDMA(mem, 0x10000, both), vfio.ErrIOVAInUse, "mapped over what is still mapped")
	k.fail["IOAS_UNMAP"] = unix.ENOENT
	should.Fail(t, d.UnmapDMA(0x10000, 4096), vfio.ErrNotMapped, "error")
	delete(k.fail, "IOAS_UNMAP")
	for _, h := range k.fds {
		for _, s := range h.spaces {
			clear(s.maps)
		}
	}
	should.OK(t, d.MapDMA(mem, 0x10000, both))
}

// TestSharedGroup opens two functions of one group: one address space, with a
// part for each.
func TestSharedGroup(t *testing.T) {
	const other = "0000:03:00.1"
	for _, b := range backends[:2] {
		t.Run(b, func(t *testing.T) {
			checkFiles(t)
			tr := machine(t)
			tr.function(other, "vfio-pci", 7, nicClass)
			tr.function("0000:00:01.0", "pcieport", 7, "0x060400") // has no part
			tr.cdev(other, "vfio1")
			k, h := openFake(t, tr)
			k.functions[other] = newFakeFunction()
			first := mustOpen(t, h, "pci:"+nic+"?backend="+b)
			second := mustOpen(t, h, "pci:"+other+"?backend="+b)
			parts := [2][]vfio.IOVARange{}
			for i, d := range []*Device{first, second} {
				r := must.Get(d.IOVARanges())(t)
				should.Hold(t, len(r) != 0 && r[0].First < 1<<32, "function %d has no addresses below 4 GiB: %#x", i, r)
				parts[i] = r
			}
			for _, x := range parts[0] {
				for _, y := range parts[1] {
					should.Hold(t, x.First > y.Last || y.First > x.Last, "%#x and %#x overlap", x, y)
				}
			}
			mem := alloc(t, 4096)
			at := parts[1][0].First
			must.OK(t, second.MapDMA(mem, at, both))
			err := first.MapDMA(mem, at, both)
			should.Fail(t, err, vfio.ErrIOVAInUse, "both at one address")
			says(t, err, other, "IOVARanges")
			should.Fail(t, first.UnmapDMA(at, 4096), vfio.ErrNotMapped, "the wrong function unmaps")
			// The second closes; the first goes on, in the same address space.
			must.OK(t, first.MapDMA(mem, parts[0][1].First, both))
			must.OK(t, second.Close())
			got := k.mapped()
			should.Hold(t, len(got) == 1 && got[parts[0][1].First] == 4096, "mapped: %#x", got)
			again := mustOpen(t, h, "pci:"+other+"?backend="+b)
			r, err := again.IOVARanges()
			should.Hold(t, err == nil && len(r) == len(parts[1]) && r[0] == parts[1][0], "another part after reopening: %#x, %v", r, err)
		})
	}
}
