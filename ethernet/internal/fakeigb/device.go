// Package fakeigb is an igb for tests: a vfio.Device that does what the driver relies on,
// and through its hooks what no device should.
//
// It keeps registers, answers resets, semaphores, NVM and PHY at once, takes frames out of
// send rings and puts frames into receive rings, raises vectors, and plays the driver of
// the physical function if it is a virtual one. What it reads and writes in memory it
// looks up among what is mapped: anything else it counts as stray, and tests fail.
package fakeigb

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

// Registers that tests use.
const (
	CTRL, STATUS, EECD, EERD, MDIC          = 0x0, 0x8, 0x10, 0x14, 0x20
	RCTL, TCTL, EIMS, EIMC, ICR             = 0x100, 0x400, 0x1524, 0x1528, 0x1500
	IVAR, EITR, RXCSUM, RLPML, MTA          = 0x1700, 0x1680, 0x5000, 0x5004, 0x5200
	RAL, RAH, VFTA, MRQC, SWSM, SWFW        = 0x5400, 0x5404, 0x5600, 0x5818, 0x5b50, 0x5b5c
	RETA, RSSRK                             = 0x5c00, 0x5c80
	GPRC, GPTC, MPC, GORCL, RQDPC0          = 0x4074, 0x4080, 0x4010, 0x4088, 0xc030
	RDBAL, RDBAH, RDLEN, SRRCTL             = 0xc000, 0xc004, 0xc008, 0xc00c // + 0x40 a queue
	RDH, RDT, RXDCTL                        = 0xc010, 0xc018, 0xc028
	TDBAL, TDBAH, TDLEN, TDH, TDT           = 0xe000, 0xe004, 0xe008, 0xe010, 0xe018
	TXDCTL, TDWBAL, TDWBAH                  = 0xe028, 0xe038, 0xe03c
	Mailbox, MailMemory, VFGPRC             = 0xc40, 0x800, 0xf10
	registerBytes                           = 0x20000
	statusUp                         uint32 = 1<<19 | 1<<7 | 1<<1 | 1<<0 // requests, 1000 Mbit/s, link, full duplex
)

// Options of New. The zero value is an 82576.
type Options struct {
	// Device is the PCI device number, 0 for 0x10c9.
	Device uint16
	// Mapped says that the registers of the rings can be mapped. Then accesses to them are
	// not seen: Fill and Drain do what writing to the tails would have done.
	Mapped bool
	// Vectors is how many MSI-X vectors there are; 0 for 25, as QEMU's 82576 has 25.
	Vectors int
	// MAC is the address, zero for 02:00:00:00:00:01.
	MAC [6]byte
}

// Device is a fake igb. Fields are set before the driver has it, or inside With.
type Device struct {
	// OnRead replaces what reading a register gives, OnWrite takes the place of what
	// writing one does if it returns true. Both are called with the device's lock held.
	OnRead  func(offset uint64, v uint32) uint32
	OnWrite func(offset uint64, v uint32) bool
	// OnSend takes the frames that are sent. It is called with the device's lock held.
	OnSend func(Sent)
	// OnEnable is called, without the lock, after receiving was switched on.
	OnEnable func()
	// OnMail answers the messages of a virtual function; nil for what a sound driver of
	// the physical function answers.
	OnMail func(message [16]uint32) (answer [16]uint32, answers bool)
	// MapFails has MapDMA fail, UnmapFails UnmapDMA, ResetFails has Reset fail.
	MapFails, UnmapFails, ResetFails error
	// ConfigFails has writes to configuration space fail.
	ConfigFails error
	// RegisterBytes is the size of BAR0 that the device tells, if it is not 0.
	RegisterBytes uint64
	// GoneZero has registers read as zero once the device was removed.
	GoneZero bool
	// NVM is the first words of the NVM.
	NVM [64]uint16
	// PHY has its registers.
	PHY [32]uint16

	mu      sync.Mutex
	options Options
	memory  *vfio.Memory // of the registers
	regs    []byte
	config  [vfio.ConfigExtendedSize]byte
	dma     map[uint64]*vfio.Memory
	irqs    map[int]int
	gone    bool
	closed  bool
	rings   [16]ring
	causes  uint32
	log     Log
	vf      mailbox
}

// Log is what a device has seen.
type Log struct {
	Strays               []string // accesses to memory that is not mapped
	Resets               int      // by CTRL
	BackendResets        int
	Reads, Writes        int // of BAR0
	LeftDMA, LeftVectors int // when it was closed
	Messages             []uint32
}

// ring is what the device knows of a queue besides its registers.
type ring struct {
	receive, send window
	contexts      [2][2]uint64
}

// New makes a device.
func New(o Options) (*Device, error) {
	if o.Device == 0 {
		o.Device = 0x10c9
	}
	if o.Vectors == 0 {
		o.Vectors = 25
	}
	if o.MAC == [6]byte{} {
		o.MAC = [6]byte{2, 0, 0, 0, 0, 1}
	}
	d := &Device{options: o, dma: map[uint64]*vfio.Memory{}, irqs: map[int]int{}}
	var err error
	if d.memory, err = vfio.AllocMemory(registerBytes, vfio.MemoryOptions{Huge: vfio.HugeNever}); err != nil {
		return nil, err
	}
	d.regs = d.memory.Bytes()
	le := binary.LittleEndian
	le.PutUint16(d.config[0:], 0x8086)
	le.PutUint16(d.config[2:], o.Device)
	le.PutUint16(d.config[6:], 0x10) // there are capabilities
	d.config[0x0b] = 2               // a network controller
	le.PutUint32(d.config[0x10:], 0xfe000000)
	le.PutUint32(d.config[0x1c:], 0xfe800000)
	d.config[0x34] = 0x40
	d.config[0x40], d.config[0x41] = 0x11, 0x60 // MSI-X: table in BAR3, pending bits behind it
	le.PutUint16(d.config[0x42:], uint16(o.Vectors-1))
	le.PutUint32(d.config[0x44:], 3)
	le.PutUint32(d.config[0x48:], 0x2000|3)
	d.config[0x60] = 0x10 // PCI Express, version 2
	d.config[0x62] = 2
	for i := range 3 {
		d.NVM[i] = le.Uint16(o.MAC[2*i:])
	}
	d.PHY = [32]uint16{0: 0x1140, 1: 0x796d, 2: 0x02a8, 3: 0x0391}
	d.vf.bits = mailResetDone
	d.reset()
	return d, nil
}

// reset is what CTRL.RST does. mu is held, or nobody has the device yet.
func (d *Device) reset() {
	clear(d.regs)
	d.rings, d.causes = [16]ring{}, 0
	d.set(STATUS, 1<<19) // it may do requests
	d.set(EECD, 1<<8|1<<9)
	d.set(RAL, binary.LittleEndian.Uint32(d.options.MAC[:]))
	d.set(RAH, uint32(binary.LittleEndian.Uint16(d.options.MAC[4:]))|1<<31)
	d.set(CTRL, 1<<3)
}

// With runs f as the device: nothing else happens meanwhile. One that was closed does
// nothing.
func (d *Device) With(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		f()
	}
}

// Log returns what the device has seen.
func (d *Device) Log() Log {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.log
}

// Remove is surprise removal: everything reads as all ones.
func (d *Device) Remove() { d.With(func() { d.gone = true }) }

// SetLink has the link go up or down.
func (d *Device) SetLink(up bool) {
	d.With(func() {
		if d.set(STATUS, d.Get(STATUS)&^2); up {
			d.set(STATUS, d.Get(STATUS)|statusUp)
		}
	})
}

// Get returns a register, inside With.
func (d *Device) Get(offset uint64) uint32 { return binary.LittleEndian.Uint32(d.regs[offset:]) }

// Config returns the configuration space, to be changed before the driver has it.
func (d *Device) Config() []byte { return d.config[:] }

func (d *Device) set(offset uint64, v uint32) { binary.LittleEndian.PutUint32(d.regs[offset:], v) }

// Info implements vfio.Device.
func (d *Device) Info() vfio.Info {
	return vfio.Info{Address: "fake:", Backend: "fake", Resettable: true, Regions: 9, IRQs: 5}
}

// Region implements vfio.Device.
func (d *Device) Region(index int) (vfio.RegionInfo, error) {
	r := vfio.RegionInfo{Index: index, Flags: vfio.RegionRead | vfio.RegionWrite, Size: uint64(len(d.space(index)))}
	switch {
	case index == vfio.RegionBAR0 && d.RegisterBytes != 0:
		r.Size = d.RegisterBytes
	case index == vfio.RegionBAR0 && d.options.Mapped:
		r.Flags |= vfio.RegionMmap
		r.Sparse = []vfio.Area{{Offset: 0xc000, Size: 0x3000}}
	case index == 3:
		r.Size = 0x4000
	}
	return r, nil
}

func (d *Device) space(index int) []byte {
	switch index {
	case vfio.RegionConfig:
		return d.config[:]
	case vfio.RegionBAR0:
		return d.regs
	}
	return nil
}

func (d *Device) access(index int, offset uint64, n int) ([]byte, error) {
	s := d.space(index)
	switch {
	case d.closed:
		return nil, vfio.ErrClosed
	case offset > uint64(len(s)) || uint64(n) > uint64(len(s))-offset:
		return nil, vfio.ErrOutOfRange
	}
	return s[offset:][:n], nil
}

// ReadRegion implements vfio.Device.
func (d *Device) ReadRegion(index int, offset uint64, p []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, err := d.access(index, offset, len(p))
	if err != nil {
		return err
	}
	copy(p, s)
	switch {
	case d.gone && d.GoneZero && index != vfio.RegionConfig:
		clear(p)
	case d.gone:
		for i := range p {
			p[i] = 0xff
		}
	case index == vfio.RegionBAR0 && len(p) == 4:
		d.log.Reads++
		v := d.readRegister(offset)
		if d.OnRead != nil {
			v = d.OnRead(offset, v)
		}
		binary.LittleEndian.PutUint32(p, v)
	}
	return nil
}

// WriteRegion implements vfio.Device.
func (d *Device) WriteRegion(index int, offset uint64, p []byte) error {
	d.mu.Lock()
	enabled := func() {}
	defer func() { d.mu.Unlock(); enabled() }()
	s, err := d.access(index, offset, len(p))
	if err != nil || d.gone {
		return err
	}
	if index != vfio.RegionBAR0 {
		if d.ConfigFails == nil {
			copy(s, p)
		}
		return d.ConfigFails
	}
	d.log.Writes++
	v := binary.LittleEndian.Uint32(p)
	if offset == RCTL && v&2 != 0 && d.OnEnable != nil {
		enabled = d.OnEnable
	}
	if d.OnWrite == nil || !d.OnWrite(offset, v) {
		d.Write(offset, v)
	}
	return nil
}

// MapRegion implements vfio.Device.
func (d *Device) MapRegion(index int, offset, size uint64) (*vfio.Mapping, error) {
	if index != vfio.RegionBAR0 || !d.options.Mapped || offset+size > registerBytes {
		return nil, vfio.ErrNotMappable
	}
	return vfio.NewMapping(d.regs[offset:][:size], nil), nil
}

// IRQ implements vfio.Device.
func (d *Device) IRQ(index int) (vfio.IRQInfo, error) {
	if index != vfio.IRQMSIX {
		return vfio.IRQInfo{}, vfio.ErrNoSuchIRQ
	}
	return vfio.IRQInfo{Index: index, Count: d.options.Vectors, Flags: vfio.IRQEventfd}, nil
}

// SetIRQs implements vfio.Device.
func (d *Device) SetIRQs(_, start int, eventfds []int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, fd := range eventfds {
		d.irqs[start+i] = fd
	}
	return nil
}

// DisableIRQs implements vfio.Device.
func (d *Device) DisableIRQs(int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.irqs)
	return nil
}

// Interrupt raises a vector, masked or not, inside With.
func (d *Device) Interrupt(vector int) {
	if fd, ok := d.irqs[vector]; ok {
		_, _ = unix.Write(fd, []byte{1, 0, 0, 0, 0, 0, 0, 0})
	}
}

// MapDMA implements vfio.Device.
func (d *Device) MapDMA(mem *vfio.Memory, iova uint64, _ vfio.DMAFlags) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.MapFails == nil {
		d.dma[iova] = mem
	}
	return d.MapFails
}

// UnmapDMA implements vfio.Device.
func (d *Device) UnmapDMA(iova, size uint64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.UnmapFails != nil {
		return d.UnmapFails
	}
	if m, ok := d.dma[iova]; !ok || m.Size() != size {
		return vfio.ErrNotMapped
	}
	// What the device would still do now would reach memory that is somebody else's.
	for q := range d.rings {
		if d.Get(RXDCTL+0x40*uint64(q))&(1<<25) != 0 && d.config[vfio.ConfigCommand]&4 != 0 && !d.gone {
			d.log.Strays = append(d.log.Strays, fmt.Sprintf("memory is taken away while ring %d is on", q))
		}
	}
	delete(d.dma, iova)
	d.rings = [16]ring{}
	return nil
}

// IOVARanges implements vfio.Device.
func (d *Device) IOVARanges() ([]vfio.IOVARange, error) {
	return []vfio.IOVARange{{First: 0x1000, Last: 1<<40 - 1}}, nil
}

// Reset implements vfio.Device.
func (d *Device) Reset(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.log.BackendResets++
	if d.ResetFails != nil {
		return d.ResetFails
	}
	d.reset()
	return nil
}

// Close implements vfio.Device.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	d.log.LeftDMA, d.log.LeftVectors = len(d.dma), len(d.irqs)
	return d.memory.Close()
}

// Closed reports whether Close was called.
func (d *Device) Closed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closed
}
