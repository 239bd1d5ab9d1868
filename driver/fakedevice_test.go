package driver_test

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

const (
	fakeEndpoints = 16
	fakeCQs       = 8
	fakeSRAM      = 8192
)

// fakeDevice is a device that does what a test scripts. Unscripted it answers
// every admin command with success, and moves no data.
type fakeDevice struct {
	t testing.TB

	mu      sync.Mutex
	config  [256]byte
	address string // "fake:" if empty
	bar0    [datasheet.BAR0Size]byte
	bar2    *vfio.Memory
	sram    *vfio.Memory
	closed  bool
	gone    bool // all ones from now on

	// Scripts. They are called with mu held.
	onWrite func(offset uint64, v uint32) bool                    // register writes; true: handled
	answer  func(cmd *datasheet.Command) (datasheet.Result, bool) // false: no answer
	tamper  func(e *datasheet.AdminEntry)                         // last look at an entry
	mapBAR2 bool
	mapSRAM bool
	sparse  []vfio.Area // what of BAR2 can be mapped; none for all
	mapped  func(offset, size uint64) ([]byte, error)
	vectors int
	mapFail error // of MapDMA
	resets  int   // by Reset

	dma   map[uint64]*vfio.Memory
	irqs  map[int]int
	admin fakeAdmin
	block *fakeBlockDMA // nil on a device that is older than the block
}

func newFake(t testing.TB) *fakeDevice {
	d := &fakeDevice{t: t, dma: map[uint64]*vfio.Memory{}, irqs: map[int]int{}, vectors: 4}
	le := binary.LittleEndian
	le.PutUint16(d.config[0:], datasheet.PCIVendorID)
	le.PutUint16(d.config[2:], datasheet.PCIDeviceID)
	le.PutUint16(d.config[8:], uint16(datasheet.PCIRevision))
	d.chain(d.olderBlocks()...)
	for reg, v := range map[uint64]uint32{
		datasheet.RegMagic: datasheet.Magic, datasheet.RegMaxEndpoints: fakeEndpoints, datasheet.RegMaxCQs: fakeCQs,
		datasheet.RegMaxRegions: 64, datasheet.RegMaxPtags: 8, datasheet.RegMaxQueueLog2: 6, datasheet.RegMaxCQLog2: 8,
		datasheet.RegMaxSegments: 252, datasheet.RegMaxTransfer: 1 << 20, datasheet.RegMTU: 4096,
		datasheet.RegSRAMSize: fakeSRAM, datasheet.RegMACLow: 0x03020100, datasheet.RegMACHigh: 0x0504,
		datasheet.RegPageSizeLog2: 12, datasheet.RegDeviceVersion: 0x010203,
	} {
		d.set(datasheet.IdentityOffset+reg, v)
	}
	d.set(datasheet.HealthOffset+datasheet.RegStatus, datasheet.DeviceReady|datasheet.DeviceLinkUp)
	d.set(datasheet.ClockOffset+datasheet.RegClockResolution, datasheet.ClockResolution)
	d.set(datasheet.CounterOffset+datasheet.RegCounterCount, uint32(datasheet.CounterCount))
	d.bar2 = must.Get(vfio.AllocMemory((fakeEndpoints+fakeCQs)*datasheet.PageSize, vfio.MemoryOptions{}))(t)
	d.sram = must.Get(vfio.AllocMemory(fakeSRAM, vfio.MemoryOptions{}))(t)
	return d
}

// olderBlocks are the blocks of a device without a DMA block.
func (d *fakeDevice) olderBlocks() []fakeBlock {
	return []fakeBlock{
		{datasheet.BlockIdentity, datasheet.BlockVersion1, datasheet.IdentityOffset, datasheet.IdentitySize},
		{datasheet.BlockHealth, datasheet.BlockVersion1, datasheet.HealthOffset, datasheet.HealthSize},
		{0xdecaf, 7 << 16, 0x180, 0x20}, // nobody knows this one
		{datasheet.BlockAdmin, datasheet.BlockVersion1, datasheet.AdminOffset, datasheet.AdminSize},
		{datasheet.BlockClock, datasheet.BlockVersion1, datasheet.ClockOffset, datasheet.ClockSize},
		{datasheet.BlockCounters, datasheet.BlockVersion1, datasheet.CounterOffset, uint32(datasheet.CountersSize)},
		{datasheet.BlockInterrupt, datasheet.BlockVersion1, datasheet.InterruptOffset, datasheet.InterruptSize},
	}
}

type fakeBlock struct {
	kind, version uint32
	offset        uint64
	size          uint32
}

// chain writes the headers of the register blocks.
func (d *fakeDevice) chain(blocks ...fakeBlock) {
	for i, b := range blocks {
		next := uint32(0)
		if i+1 < len(blocks) {
			next = uint32(blocks[i+1].offset)
		}
		d.set(b.offset+datasheet.BlockRegType, b.kind)
		d.set(b.offset+datasheet.BlockRegVersion, b.version)
		d.set(b.offset+datasheet.BlockRegNext, next)
		d.set(b.offset+datasheet.BlockRegSize, b.size)
	}
}

func (d *fakeDevice) set(offset uint64, v uint32) { binary.LittleEndian.PutUint32(d.bar0[offset:], v) }
func (d *fakeDevice) get(offset uint64) uint32    { return binary.LittleEndian.Uint32(d.bar0[offset:]) }

// with runs f as the device: nothing else happens meanwhile.
func (d *fakeDevice) with(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f()
}

// doorbell returns what was last stored at an offset in BAR2.
func (d *fakeDevice) doorbell(offset uint64) uint32 {
	return datasheet.LoadIndex(datasheet.IndexAt(d.bar2.Bytes()[offset:]))
}

func (d *fakeDevice) Info() vfio.Info {
	return vfio.Info{Address: cmp.Or(d.address, "fake:"), Backend: "fake", Resettable: true, Regions: 9, IRQs: 5}
}

func (d *fakeDevice) Region(index int) (vfio.RegionInfo, error) {
	r := vfio.RegionInfo{Index: index, Flags: vfio.RegionRead | vfio.RegionWrite, Size: uint64(len(d.space(index)))}
	if index == vfio.RegionBAR2 && d.mapBAR2 {
		r.Flags |= vfio.RegionMmap
		r.Sparse = d.sparse
	}
	if index == vfio.RegionBAR4 && d.mapSRAM {
		r.Flags |= vfio.RegionMmap
	}
	return r, nil
}

func (d *fakeDevice) space(index int) []byte {
	switch index {
	case vfio.RegionConfig:
		return d.config[:]
	case vfio.RegionBAR0:
		return d.bar0[:]
	case vfio.RegionBAR2:
		return d.bar2.Bytes()
	case vfio.RegionBAR4:
		return d.sram.Bytes()
	}
	return nil
}

func (d *fakeDevice) access(index int, offset uint64, n int) ([]byte, error) {
	s := d.space(index)
	switch {
	case d.closed:
		return nil, vfio.ErrClosed
	case offset > uint64(len(s)) || uint64(n) > uint64(len(s))-offset:
		return nil, vfio.ErrOutOfRange
	}
	return s[offset:][:n], nil
}

func (d *fakeDevice) ReadRegion(index int, offset uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.access(index, offset, len(p))
	if err != nil {
		return err
	}
	copy(p, s)
	if d.gone {
		for i := range p {
			p[i] = 0xff
		}
	}
	return nil
}

func (d *fakeDevice) WriteRegion(index int, offset uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.access(index, offset, len(p))
	if err != nil || d.gone {
		return err
	}
	if index != vfio.RegionBAR0 {
		copy(s, p)
		return nil
	}
	v := binary.LittleEndian.Uint32(p)
	if d.onWrite == nil || !d.onWrite(offset, v) {
		d.writeRegister(offset, v)
	}
	return nil
}

// writeRegister is what a sound device does.
func (d *fakeDevice) writeRegister(offset uint64, v uint32) {
	switch offset {
	case datasheet.HealthOffset + datasheet.RegControl:
		d.admin = fakeAdmin{}
		d.resetDMA()
		d.set(datasheet.AdminOffset+datasheet.RegAdminStatus, 0)
		resets := datasheet.HealthOffset + uint64(datasheet.RegResetCount)
		d.set(resets, d.get(resets)+1)
	case datasheet.AdminOffset + datasheet.RegAdminControl:
		d.set(datasheet.AdminOffset+datasheet.RegAdminStatus, v&datasheet.AdminEnable)
		d.enableAdmin()
	case datasheet.AdminOffset + datasheet.RegSQProducer:
		d.fetchCommands(v)
	default:
		if !d.writeDMA(offset, v) {
			d.set(offset, v)
		}
	}
}

func (d *fakeDevice) MapRegion(index int, offset, size uint64) (*vfio.Mapping, error) {
	if index == vfio.RegionBAR4 && d.mapSRAM {
		return vfio.NewMapping(d.sram.Bytes()[offset:][:size], nil), nil
	}
	if index != vfio.RegionBAR2 || !d.mapBAR2 {
		return nil, vfio.ErrNotMappable
	}
	if d.mapped != nil {
		b, err := d.mapped(offset, size)
		if err != nil {
			return nil, err
		}
		return vfio.NewMapping(b, nil), nil
	}
	return vfio.NewMapping(d.bar2.Bytes()[offset:][:size], nil), nil
}

func (d *fakeDevice) IRQ(index int) (vfio.IRQInfo, error) {
	if index != vfio.IRQMSIX {
		return vfio.IRQInfo{}, vfio.ErrNoSuchIRQ
	}
	return vfio.IRQInfo{Index: index, Count: d.vectors, Flags: vfio.IRQEventfd}, nil
}

func (d *fakeDevice) SetIRQs(index, start int, eventfds []int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, fd := range eventfds {
		d.irqs[start+i] = fd
	}
	return nil
}

func (d *fakeDevice) DisableIRQs(index int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.irqs)
	return nil
}

// interrupt raises a vector. It is called with mu held.
func (d *fakeDevice) interrupt(vector int) {
	if fd, ok := d.irqs[vector]; ok {
		if _, err := unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
			d.t.Errorf("interrupt %d: %v", vector, err)
		}
	}
}

func (d *fakeDevice) MapDMA(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mapFail != nil {
		return d.mapFail
	}
	d.dma[iova] = mem
	return nil
}

func (d *fakeDevice) UnmapDMA(iova, size uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m, ok := d.dma[iova]; !ok || m.Size() != size {
		return vfio.ErrNotMapped
	}
	delete(d.dma, iova)
	return nil
}

// memory returns n bytes of host memory. It is called with mu held.
func (d *fakeDevice) memory(iova uint64, n int) []byte {
	for at, m := range d.dma {
		if iova >= at && iova-at < m.Size() && uint64(n) <= m.Size()-(iova-at) {
			return m.Bytes()[iova-at:][:n]
		}
	}
	d.t.Errorf("no host memory at %#x", iova)
	return make([]byte, n)
}

func (d *fakeDevice) IOVARanges() ([]vfio.IOVARange, error) {
	return []vfio.IOVARange{{First: 0x1000, Last: 1<<32 - 1}}, nil
}

func (d *fakeDevice) Reset(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.resets++
	return nil
}

func (d *fakeDevice) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	should.Be(d.t, len(d.dma), 0, "DMA mappings are left")
	should.Be(d.t, len(d.irqs), 0, "interrupts are left")
	return errors.Join(d.bar2.Close(), d.sram.Close())
}
