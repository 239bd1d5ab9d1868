package vfiouser_test

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/buserror"
	"github.com/trapeze-nic/trapeze/vfio"
)

// The registers of copier's BAR0. All are of 32 bits but for the addresses.
const (
	regID     = 0x00 // reads copierID
	regSource = 0x08 // 64 bits
	regTarget = 0x10 // 64 bits
	regLength = 0x18
	regStart  = 0x1c // 1: copy once, 2: until stopped, 0: stop
	regCopies = 0x20 // copies done
	regFaults = 0x24 // accesses that were refused or hit nothing

	copierID = 0x43504d54
	// The doorbell in BAR4: a store of another value copies once.
	doorbell = 0x40
)

// copier is a device with registers, two regions that can be mapped, MSI-X and a
// DMA engine that copies memory.
type copier struct {
	t       testing.TB
	unclean atomic.Bool // Renew fails

	mu      sync.Mutex
	config  []byte
	regs    [0x40]byte
	bars    map[int]*barMemory
	irqs    [5][]int
	windows []window
	running bool
	rung    uint32
	resets  int
	renewed int

	slow  atomic.Bool // SetIRQs writes to its eventfds, which may block
	stop  chan struct{}
	ended sync.WaitGroup
}

type window struct {
	iova  uint64
	bytes []byte
	flags vfio.DMAFlags
}

func (w *window) end() uint64 { return w.iova + uint64(len(w.bytes)) }

// barMemory is a file and a mapping of it.
type barMemory struct {
	fd    int
	bytes []byte
}

func newBarMemory(t testing.TB, size, seals int) *barMemory {
	fd := must.Get(unix.MemfdCreate("trapeze-copier", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
	must.OK(t, unix.Ftruncate(fd, int64(size)))
	must.Get(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals))(t)
	b := must.Get(unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	return &barMemory{fd, b}
}

func (m *barMemory) close() {
	_ = unix.Munmap(m.bytes)
	_ = unix.Close(m.fd)
}

const allSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// newCopier makes a device that runs until the test ends.
func newCopier(t testing.TB) *copier {
	t.Helper()
	d := &copier{t: t, stop: make(chan struct{})}
	d.makeNew()
	d.ended.Go(d.run)
	t.Cleanup(func() {
		close(d.stop)
		d.ended.Wait()
		d.freeMemory()
	})
	return d
}

func (d *copier) makeNew() {
	d.freeMemory()
	d.bars = map[int]*barMemory{2: newBarMemory(d.t, 8*page, allSeals), 4: newBarMemory(d.t, 4*page, allSeals),
		5: newBarMemory(d.t, page, unix.F_SEAL_GROW)}
	for i := range d.irqs {
		n := map[int]int{vfio.IRQMSIX: 40, vfio.IRQErr: 1, vfio.IRQReq: 1}[i]
		d.irqs[i] = slices.Repeat([]int{-1}, n)
	}
	d.clear()
}

// clear is what a reset does.
func (d *copier) clear() {
	d.config = make([]byte, 4096)
	binary.LittleEndian.PutUint32(d.config, 0x7250_1234)
	d.regs = [0x40]byte{}
	binary.LittleEndian.PutUint32(d.regs[regID:], copierID)
	d.running, d.rung = false, 0
	clear(d.bars[2].bytes)
	clear(d.bars[4].bytes)
	for _, i := range []int{vfio.IRQMSIX} {
		for v := range d.irqs[i] {
			d.irqs[i][v] = -1
		}
	}
}

func (d *copier) freeMemory() {
	for _, m := range d.bars {
		m.close()
	}
	d.bars = nil
}

// run is the device's engine.
func (d *copier) run() {
	for {
		select {
		case <-d.stop:
			return
		case <-time.After(50 * time.Microsecond):
		}
		d.step()
	}
}

func (d *copier) step() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := binary.LittleEndian.Uint32(d.bars[4].bytes[doorbell:]); v != d.rung {
		d.rung = v
		d.copy()
	}
	if d.running {
		d.copy()
	}
}

func (d *copier) reg32(at int) uint32 { return binary.LittleEndian.Uint32(d.regs[at:]) }
func (d *copier) reg64(at int) uint64 { return binary.LittleEndian.Uint64(d.regs[at:]) }

func (d *copier) count(at int, n uint32) {
	binary.LittleEndian.PutUint32(d.regs[at:], d.reg32(at)+n)
}

// copy moves memory and raises vector 0. mu is held.
func (d *copier) copy() {
	from, to, left := d.reg64(regSource), d.reg64(regTarget), uint64(d.reg32(regLength))
	// What a client takes away is a fault of its own making.
	err := buserror.Catch(func() {
		for left > 0 {
			s, t := d.find(from, vfio.DMARead), d.find(to, vfio.DMAWrite)
			n := min(left, uint64(len(s)), uint64(len(t)))
			if n == 0 {
				d.count(regFaults, 1)
				return
			}
			copy(t[:n], s[:n])
			from, to, left = from+n, to+n, left-n
		}
	})
	if err != nil {
		d.count(regFaults, 1)
		d.running = false
	}
	d.count(regCopies, 1)
	d.raise(vfio.IRQMSIX, 0)
}

func (d *copier) find(iova uint64, need vfio.DMAFlags) []byte {
	i, ok := slices.BinarySearchFunc(d.windows, iova, func(w window, iova uint64) int {
		switch {
		case w.end() <= iova:
			return -1
		case w.iova > iova:
			return 1
		}
		return 0
	})
	if !ok || d.windows[i].flags&need == 0 {
		return nil
	}
	return d.windows[i].bytes[iova-d.windows[i].iova:]
}

func (d *copier) raise(index, vector int) {
	if fd := d.irqs[index][vector]; fd >= 0 {
		_, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (d *copier) Info() vfio.Info {
	return vfio.Info{Address: "copier", Backend: "test", Resettable: true, Regions: 9, IRQs: 5}
}

func (d *copier) Region(index int) (vfio.RegionInfo, error) {
	const rw = vfio.RegionRead | vfio.RegionWrite
	r := vfio.RegionInfo{Index: index}
	switch index {
	case 0:
		r.Size, r.Flags = page, rw
	case 2:
		r.Size, r.Flags = 8*page, rw|vfio.RegionMmap
		r.Sparse = []vfio.Area{{Offset: page, Size: 2 * page}, {Offset: 4 * page, Size: page}}
	case 4:
		r.Size, r.Flags = 4*page, rw|vfio.RegionMmap
	case 5: // its file is not sealed
		r.Size, r.Flags = page, rw|vfio.RegionMmap
	case vfio.RegionROM:
		r.Size, r.Flags = page, vfio.RegionRead
	case vfio.RegionConfig:
		r.Size, r.Flags = 4096, rw
	}
	return r, nil
}

func (d *copier) RegionFile(index int) (int, uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.bars[index].fd, 0, nil
}

func (d *copier) IRQ(index int) (vfio.IRQInfo, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return vfio.IRQInfo{Index: index, Count: len(d.irqs[index]), Flags: vfio.IRQEventfd | vfio.IRQNoResize}, nil
}

func (d *copier) memory(index int) []byte {
	switch index {
	case 0:
		return d.regs[:]
	case vfio.RegionConfig:
		return d.config
	case vfio.RegionROM:
		return nil
	}
	return d.bars[index].bytes
}

func (d *copier) ReadRegion(index int, offset uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.memory(index)
	copy(p, m[min(offset, uint64(len(m))):])
	return nil
}

func (d *copier) WriteRegion(index int, offset uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	m := d.memory(index)
	copy(m[min(offset, uint64(len(m))):], p)
	if index != 0 {
		return nil
	}
	if offset == regStart && len(p) == 4 {
		d.running = p[0] == 2
		if p[0] == 1 {
			d.copy()
		}
	}
	return nil
}

func (d *copier) SetIRQs(index, start int, eventfds []int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(d.irqs[index][start:], eventfds)
	if d.slow.Load() {
		for v := range eventfds {
			d.raise(index, start+v)
		}
	}
	return nil
}

func (d *copier) DisableIRQs(index int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for v := range d.irqs[index] {
		d.irqs[index][v] = -1
	}
	return nil
}

func (d *copier) MapWindow(iova uint64, b []byte, flags vfio.DMAFlags) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	i, _ := slices.BinarySearchFunc(d.windows, iova, func(w window, iova uint64) int {
		if w.end() <= iova {
			return -1
		}
		return 1
	})
	if i < len(d.windows) && d.windows[i].iova < iova+uint64(len(b)) {
		d.t.Errorf("window at %#x overlaps that at %#x", iova, d.windows[i].iova)
	}
	d.windows = slices.Insert(d.windows, i, window{iova, b, flags})
	return nil
}

func (d *copier) UnmapWindows(first, last uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.windows = slices.DeleteFunc(d.windows, func(w window) bool {
		inside := w.iova >= first && w.end()-1 <= last
		should.Hold(d.t, inside || w.iova > last || w.end()-1 < first, "window at %#x is cut", w.iova)
		return inside
	})
	return nil
}

func (d *copier) Reset(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clear()
	d.resets++
	return ctx.Err()
}

func (d *copier) Renew(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.unclean.Load() {
		return unix.EIO
	}
	should.Be(d.t, len(d.windows), 0, "windows are left")
	d.makeNew()
	d.renewed++
	return ctx.Err()
}
