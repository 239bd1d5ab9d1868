package kernel

import (
	"errors"
	"maps"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/vfio"
)

const both = vfio.DMARead | vfio.DMAWrite

func TestMapDMA(t *testing.T) {
	for _, b := range backends[:2] {
		t.Run(b, func(t *testing.T) {
			k, d := ready(t, b)
			mem := alloc(t, 8192)
			if err := d.MapDMA(mem, 0x10000, both); err != nil {
				t.Fatal(err)
			}
			if err := d.MapDMA(mem, 0x12000, vfio.DMARead); err != nil { // the same memory, right behind
				t.Fatal(err)
			}
			if got := k.mapped(); !maps.Equal(got, map[uint64]uint64{0x10000: 0x2000, 0x12000: 0x2000}) {
				t.Errorf("the kernel has mapped %#x", got)
			}
			if err := d.UnmapDMA(0x10000, 8192); err != nil {
				t.Fatal(err)
			}
			if got := k.mapped(); !maps.Equal(got, map[uint64]uint64{0x12000: 0x2000}) {
				t.Errorf("the kernel has mapped %#x", got)
			}
			if err := d.MapDMA(mem, 0x10000, vfio.DMAWrite); err != nil { // free again
				t.Fatal(err)
			}
		})
	}
}

// TestBadMapDMA: what is refused changes nothing.
func TestBadMapDMA(t *testing.T) {
	for _, b := range backends[:2] {
		t.Run(b, func(t *testing.T) {
			k, d := ready(t, b)
			mem, gone := alloc(t, 8192), alloc(t, 4096)
			if err := gone.Close(); err != nil {
				t.Fatal(err)
			}
			if err := d.MapDMA(mem, 0x10000, both); err != nil {
				t.Fatal(err)
			}
			before := k.mapped()
			const ranges = "usable: 0x0 to 0xfedfffff 0xfef00000 to 0x7fffffffff"
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
				{"no access", d.MapDMA(mem, 0x20000, 0), unix.EINVAL, "read, write or both"},
				{"unknown access", d.MapDMA(mem, 0x20000, 8), unix.EINVAL, ""},
				{"closed memory", d.MapDMA(gone, 0x20000, both), vfio.ErrClosed, ""},
				{"no memory", d.MapDMA(nil, 0x20000, both), vfio.ErrClosed, ""},
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
			if got := k.mapped(); !maps.Equal(got, before) {
				t.Errorf("the kernel has mapped %#x, before %#x", got, before)
			}
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
		{unix.EINVAL, vfio.ErrIOVARange, []string{"usable: 0x0 to"}},
		{unix.EFAULT, unix.EFAULT, []string{"cannot be pinned"}},
		{unix.EIO, unix.EIO, nil},
	} {
		for backend, step := range map[string]string{backendGroup: "MAP_DMA", backendCdev: "IOAS_MAP"} {
			t.Run(tt.fails.Error()+"/"+backend, func(t *testing.T) {
				k, d := ready(t, backend)
				k.fail[step] = tt.fails
				err := d.MapDMA(alloc(t, 8192), 0x10000, both)
				if !errors.Is(err, tt.want) || !errors.Is(err, tt.fails) {
					t.Fatalf("error %v", err)
				}
				says(t, err, append(tt.says, "map 0x2000 bytes at IOVA 0x10000", nic)...)
				delete(k.fail, step)
				if err := d.MapDMA(alloc(t, 8192), 0x10000, both); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		}
	}
}

// TestMemlockHint: the limit, what is locked, and what it should be.
func TestMemlockHint(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 65536, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
			t.Error(err)
		}
	})
	k, d := ready(t, backendGroup)
	k.fail["MAP_DMA"] = unix.ENOMEM
	err := d.MapDMA(alloc(t, 1<<20), 0x100000, both)
	says(t, err, "1048576 bytes are wanted", "196608 are locked", "at most 65536", "ulimit -l 1216", "LimitMEMLOCK=1216K")
}

// TestUnmapFails: what the kernel does not know is forgotten, the rest is kept.
func TestUnmapFails(t *testing.T) {
	k, d := ready(t, backendCdev)
	mem := alloc(t, 4096)
	if err := d.MapDMA(mem, 0x10000, both); err != nil {
		t.Fatal(err)
	}
	k.fail["IOAS_UNMAP"] = unix.EBUSY
	if err := d.UnmapDMA(0x10000, 4096); !errors.Is(err, unix.EBUSY) {
		t.Errorf("error %v", err)
	}
	if err := d.MapDMA(mem, 0x10000, both); !errors.Is(err, vfio.ErrIOVAInUse) {
		t.Errorf("mapped over what is still mapped: %v", err)
	}
	k.fail["IOAS_UNMAP"] = unix.ENOENT
	if err := d.UnmapDMA(0x10000, 4096); !errors.Is(err, vfio.ErrNotMapped) {
		t.Errorf("error %v", err)
	}
	delete(k.fail, "IOAS_UNMAP")
	for _, h := range k.fds {
		for _, s := range h.spaces {
			clear(s.maps)
		}
	}
	if err := d.MapDMA(mem, 0x10000, both); err != nil {
		t.Errorf("what the kernel does not know is still in the way: %v", err)
	}
}

func TestMapDMABatch(t *testing.T) {
	for _, b := range backends[:2] {
		t.Run(b, func(t *testing.T) {
			k, d := ready(t, b)
			k.iommu.limit = 3
			mem := alloc(t, 4096)
			batch := func(iovas ...uint64) error {
				var list []DMAMapping
				for _, iova := range iovas {
					list = append(list, DMAMapping{mem, iova, both})
				}
				return d.MapDMABatch(list)
			}
			if err := batch(); err != nil {
				t.Errorf("nothing: %v", err)
			}
			k.steps()
			for _, tt := range []struct {
				name  string
				iovas []uint64
				want  error
			}{
				{"one outside", []uint64{0x1000, 0x2000, 1 << 50}, vfio.ErrIOVARange},
				{"twice the same", []uint64{0x1000, 0x2000, 0x1000}, vfio.ErrIOVAInUse},
			} {
				if err := batch(tt.iovas...); !errors.Is(err, tt.want) {
					t.Errorf("%s: %v", tt.name, err)
				}
			}
			if calls := k.steps(); len(calls) > 0 {
				t.Errorf("the kernel was asked although the list is bad: %v", calls)
			}
			// The kernel refuses the last one.
			if err := batch(0x1000, 0x2000, 0x3000, 0x4000); !errors.Is(err, unix.ENOSPC) {
				t.Errorf("more than there can be: %v", err)
			}
			if got := k.mapped(); len(got) > 0 {
				t.Errorf("a failed batch left %#x", got)
			}
			if err := batch(0x1000, 0x2000, 0x3000); err != nil {
				t.Error(err)
			}
			if n, ok, err := d.DMAAvailable(); err != nil || n != 0 || ok != (b == backendGroup) {
				t.Errorf("%d mappings left, told %v, %v", n, ok, err)
			}
		})
	}
}

// TestBatchLooksFirst: type 1 says how many mappings are left.
func TestBatchLooksFirst(t *testing.T) {
	k, d := ready(t, backendGroup)
	k.iommu.limit = 1
	k.tr.file("1\n", "sys/module/vfio_iommu_type1/parameters/dma_entry_limit")
	mem := alloc(t, 4096)
	k.steps()
	err := d.MapDMABatch([]DMAMapping{{mem, 0x1000, both}, {mem, 0x2000, both}})
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("error %v", err)
	}
	says(t, err, "the kernel takes 1 more", "dma_entry_limit, now 1")
	for _, s := range k.steps() {
		if s == "MAP_DMA" {
			t.Error("mapped although there is no room for all")
		}
	}
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
				r, err := d.IOVARanges()
				if err != nil {
					t.Fatal(err)
				}
				if len(r) == 0 || r[0].First >= 1<<32 {
					t.Errorf("function %d has no addresses below 4 GiB: %#x", i, r)
				}
				parts[i] = r
			}
			for _, x := range parts[0] {
				for _, y := range parts[1] {
					if x.First <= y.Last && y.First <= x.Last {
						t.Errorf("%#x and %#x overlap", x, y)
					}
				}
			}
			mem := alloc(t, 4096)
			at := parts[1][0].First
			if err := second.MapDMA(mem, at, both); err != nil {
				t.Fatal(err)
			}
			err := first.MapDMA(mem, at, both)
			if !errors.Is(err, vfio.ErrIOVAInUse) {
				t.Errorf("both at one address: %v", err)
			}
			says(t, err, other, "IOVARanges")
			if err := first.UnmapDMA(at, 4096); !errors.Is(err, vfio.ErrNotMapped) {
				t.Errorf("the wrong function unmaps: %v", err)
			}
			// The second closes; the first goes on, in the same address space.
			if err := first.MapDMA(mem, parts[0][1].First, both); err != nil {
				t.Fatal(err)
			}
			if err := second.Close(); err != nil {
				t.Fatal(err)
			}
			if got := k.mapped(); len(got) != 1 || got[parts[0][1].First] != 4096 {
				t.Errorf("mapped: %#x", got)
			}
			again := mustOpen(t, h, "pci:"+other+"?backend="+b)
			r, err := again.IOVARanges()
			if err != nil || len(r) != len(parts[1]) || r[0] != parts[1][0] {
				t.Errorf("another part after reopening: %#x, %v", r, err)
			}
		})
	}
}

// TestDomainModel compares the list of mappings with a set of pages.
func TestDomainModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := &domain{}
		pages := map[uint64]uint64{} // first page of the mapping, by page
		sizes := map[uint64]uint64{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			first := rapid.Uint64Range(0, 30).Draw(t, "first")
			size := rapid.Uint64Range(1, 6).Draw(t, "size")
			taken := false
			for p := first; p < first+size; p++ {
				_, in := pages[p]
				taken = taken || in
			}
			if _, got := d.overlaps(first*4096, size*4096); got != taken {
				t.Fatalf("pages %d to %d: overlap %v, want %v", first, first+size-1, got, taken)
			}
			if !taken {
				d.add(mapped{iova: first * 4096, size: size * 4096})
				for p := first; p < first+size; p++ {
					pages[p] = first
				}
				sizes[first] = size
			} else if start, ok := pages[first]; ok && rapid.Bool().Draw(t, "remove") {
				d.remove(start * 4096)
				for p := start; p < start+sizes[start]; p++ {
					delete(pages, p)
				}
			}
		}
	})
}
