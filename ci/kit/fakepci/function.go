// Package fakepci is the part of a fake NIC that does not depend on the NIC: a PCI function
// with configuration space, one BAR of registers, MSI-X and DMA, as a vfio.Device.
//
// What a fake reads and writes in memory it looks up among what is mapped. Anything else is
// counted as stray, and tests fail.
package fakepci

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// Model has the behaviour of a fake NIC. All is called with the function's lock held.
type Model interface {
	// ReadRegister returns a register of BAR0.
	ReadRegister(offset uint64) uint32
	// Write does what writing a register of BAR0 does.
	Write(offset uint64, v uint32)
	// PowerOn brings the NIC into its first state.
	PowerOn()
	// On names a ring that may still reach memory, empty if none may.
	On() string
	// Forget drops what was looked up in memory.
	Forget()
}

// Options of New.
type Options struct {
	Vendor, Device, Subvendor, Subdevice uint16
	// Vectors is the number of MSI-X vectors. Their table is at MSIXTable of MSIXBAR, and
	// the pending bits are at MSIXPending.
	Vectors, MSIXBAR       int
	MSIXTable, MSIXPending uint32
	// Bytes is the size of BAR0. Of it Mapped can be mapped.
	Bytes  uint64
	Mapped []vfio.Area
	// Extra has the sizes of other BARs, which are memory without a function.
	Extra map[int]uint64
}

// Function is a fake PCI function. Fields are set before the driver has it, or inside With.
type Function struct {
	// OnRead replaces what reading a register gives, OnWrite takes the place of what writing one
	// does if it returns true. Both are called with the lock held.
	OnRead  func(offset uint64, v uint32) uint32
	OnWrite func(offset uint64, v uint32) bool
	// MapFails has MapDMA fail, UnmapFails UnmapDMA, ResetFails Reset, ConfigFails writes to
	// configuration space.
	MapFails, UnmapFails, ResetFails, ConfigFails error
	// RegisterBytes is the size of BAR0 that the device tells, if it is not 0.
	RegisterBytes uint64
	// GoneZero has registers read as zero once the device was removed.
	GoneZero bool

	// Registers is BAR0.
	Registers []byte

	model   Model
	options Options
	mu      sync.Mutex
	extra   map[int][]byte
	config  [vfio.ConfigExtendedSize]byte
	dma     map[uint64][]byte // windows, by bus address
	irqs    map[int]int
	gone    bool
	closed  bool
	log     Log
}

// Log has the accesses to a function.
type Log struct {
	Strays               []string // accesses to memory that is not mapped
	BackendResets        int
	Reads, Writes        int // of BAR0
	LeftDMA, LeftVectors int // when it was closed
}

// irqs is the number of interrupt indexes.
const irqs = 5

// New makes a function around a model.
func New(m Model, o Options) (*Function, error) {
	f := &Function{model: m, options: o, dma: map[uint64][]byte{}, irqs: map[int]int{}, extra: map[int][]byte{}}
	var err error
	// Tests touch few pages of a BAR. Nothing reaches it by DMA, so that they need not be there before.
	if f.Registers, err = unix.Mmap(-1, 0, int(o.Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON); err != nil {
		return nil, err
	}
	for bar, size := range o.Extra {
		f.extra[bar] = make([]byte, size)
	}
	le := binary.LittleEndian
	le.PutUint16(f.config[0:], o.Vendor)
	le.PutUint16(f.config[2:], o.Device)
	le.PutUint16(f.config[6:], 0x10) // there are capabilities
	f.config[0x0b] = 2               // a network controller
	le.PutUint32(f.config[0x10:], 0xfe000000)
	le.PutUint32(f.config[0x1c:], 0xfe800000)
	le.PutUint16(f.config[0x2c:], o.Subvendor)
	le.PutUint16(f.config[0x2e:], o.Subdevice)
	f.config[0x34] = 0x40
	f.config[0x40], f.config[0x41] = 0x11, 0x60 // MSI-X
	le.PutUint16(f.config[0x42:], uint16(o.Vectors-1))
	le.PutUint32(f.config[0x44:], o.MSIXTable|uint32(o.MSIXBAR))
	le.PutUint32(f.config[0x48:], o.MSIXPending|uint32(o.MSIXBAR))
	f.config[0x60] = 0x10 // PCI Express, version 2
	f.config[0x62] = 2
	return f, nil
}

// With runs g as the device: nothing else happens meanwhile. One that was closed does nothing.
func (f *Function) With(g func()) {
	f.Locked(func() {
		if !f.closed {
			g()
		}
	})
}

// Locked runs g with the lock held, also if the device was closed.
func (f *Function) Locked(g func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	g()
}

// Log returns what the function has seen.
func (f *Function) Log() Log {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.log
}

// Remove is surprise removal: everything reads as all ones.
func (f *Function) Remove() { f.With(func() { f.gone = true }) }

// Get returns a register as it is stored, inside With.
func (f *Function) Get(offset uint64) uint32 {
	return binary.LittleEndian.Uint32(f.Registers[offset:])
}

// Set stores a register, inside With.
func (f *Function) Set(offset uint64, v uint32) {
	binary.LittleEndian.PutUint32(f.Registers[offset:], v)
}

// Config returns the configuration space, to be changed before the driver has it.
func (f *Function) Config() []byte { return f.config[:] }

// Vectors returns how many MSI-X vectors there are.
func (f *Function) Vectors() int { return f.options.Vectors }

func (f *Function) Info() vfio.Info {
	return vfio.Info{Address: "fake:", Backend: "fake", Resettable: true, Regions: 9, IRQs: irqs}
}

func (f *Function) Region(index int) (vfio.RegionInfo, error) {
	r := vfio.RegionInfo{Index: index, Flags: vfio.RegionRead | vfio.RegionWrite, Size: uint64(len(f.space(index)))}
	switch {
	case index == vfio.RegionBAR0 && f.RegisterBytes != 0:
		r.Size = f.RegisterBytes
	case index == vfio.RegionBAR0 && len(f.options.Mapped) > 0:
		r.Flags |= vfio.RegionMmap
		r.Sparse = f.options.Mapped
	}
	return r, nil
}

func (f *Function) space(index int) []byte {
	switch index {
	case vfio.RegionConfig:
		return f.config[:]
	case vfio.RegionBAR0:
		return f.Registers
	}
	return f.extra[index]
}

func (f *Function) access(index int, offset uint64, n int) ([]byte, error) {
	s := f.space(index)
	switch {
	case f.closed:
		return nil, vfio.ErrClosed
	case offset > uint64(len(s)) || uint64(n) > uint64(len(s))-offset:
		return nil, vfio.ErrOutOfRange
	}
	return s[offset:][:n], nil
}

func (f *Function) ReadRegion(index int, offset uint64, p []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.access(index, offset, len(p))
	if err != nil {
		return err
	}
	copy(p, s)
	switch {
	case f.gone && f.GoneZero && index != vfio.RegionConfig:
		clear(p)
	case f.gone:
		for i := range p {
			p[i] = 0xff
		}
	case index == vfio.RegionBAR0 && len(p) == 4:
		f.log.Reads++
		v := f.model.ReadRegister(offset)
		if f.OnRead != nil {
			v = f.OnRead(offset, v)
		}
		binary.LittleEndian.PutUint32(p, v)
	}
	return nil
}

func (f *Function) WriteRegion(index int, offset uint64, p []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, err := f.access(index, offset, len(p))
	if err != nil || f.gone {
		return err
	}
	switch index {
	case vfio.RegionBAR0:
		f.log.Writes++
		v := binary.LittleEndian.Uint32(p)
		if f.OnWrite == nil || !f.OnWrite(offset, v) {
			f.model.Write(offset, v)
		}
	case vfio.RegionConfig:
		if f.ConfigFails != nil {
			return f.ConfigFails
		}
		copy(s, p)
	default:
		copy(s, p)
	}
	return nil
}

func (f *Function) MapRegion(index int, offset, size uint64) (*vfio.Mapping, error) {
	if index != vfio.RegionBAR0 || len(f.options.Mapped) == 0 || offset+size > f.options.Bytes {
		return nil, vfio.ErrNotMappable
	}
	return vfio.NewMapping(f.Registers[offset:][:size], nil), nil
}

func (f *Function) IRQ(index int) (vfio.IRQInfo, error) {
	switch {
	case index >= irqs:
		return vfio.IRQInfo{}, vfio.ErrNoSuchIRQ
	case index != vfio.IRQMSIX:
		return vfio.IRQInfo{Index: index}, nil
	}
	return vfio.IRQInfo{Index: index, Count: f.options.Vectors, Flags: vfio.IRQEventfd}, nil
}

func (f *Function) SetIRQs(_, start int, eventfds []int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fd := range eventfds {
		if delete(f.irqs, start+i); fd >= 0 {
			f.irqs[start+i] = fd
		}
	}
	return nil
}

func (f *Function) DisableIRQs(int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.irqs)
	return nil
}

// Interrupt raises a vector, masked or not, inside With.
func (f *Function) Interrupt(vector int) {
	if fd, ok := f.irqs[vector]; ok {
		_, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

func (f *Function) MapDMA(mem *vfio.Memory, iova uint64, _ vfio.DMAFlags) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.MapFails == nil {
		f.dma[iova] = mem.Bytes()
	}
	return f.MapFails
}

func (f *Function) UnmapDMA(iova, size uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.UnmapFails != nil {
		return f.UnmapFails
	}
	if b, ok := f.dma[iova]; !ok || uint64(len(b)) != size {
		return vfio.ErrNotMapped
	}
	f.unmap(iova)
	return nil
}

// unmap takes a window away.
func (f *Function) unmap(iova uint64) {
	// What the device would still do now would reach memory of another owner.
	if ring := f.model.On(); ring != "" && f.config[vfio.ConfigCommand]&4 != 0 && !f.gone {
		f.log.Strays = append(f.log.Strays, fmt.Sprintf("memory is taken away while %s is on", ring))
	}
	delete(f.dma, iova)
	f.model.Forget()
}

func (f *Function) IOVARanges() ([]vfio.IOVARange, error) {
	return []vfio.IOVARange{{First: 0x1000, Last: 1<<40 - 1}}, nil
}

func (f *Function) Reset(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.log.BackendResets++
	if f.ResetFails != nil {
		return f.ResetFails
	}
	f.model.PowerOn()
	return nil
}

func (f *Function) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	f.log.LeftDMA, f.log.LeftVectors = len(f.dma), len(f.irqs)
	return unix.Munmap(f.Registers)
}

// Closed reports whether Close was called.
func (f *Function) Closed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}
