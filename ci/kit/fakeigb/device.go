// Package fakeigb is an igb for tests: a vfio.Device that does what the driver relies on,
// and through its hooks what no device should.
//
// It keeps registers, and answers resets, semaphores, NVM and PHY at once. It takes frames out of
// send rings, puts frames into receive rings and raises vectors. It plays the driver of
// the physical function if it is a virtual one. What it reads and writes in memory it
// looks up among what is mapped: anything else it counts as stray, and tests fail.
package fakeigb

import (
	"cmp"
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/ci/kit/fakepci"
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
	// Vectors is the number of MSI-X vectors; 0 for 25, as QEMU's 82576 has 25.
	Vectors int
	// MAC is the address, zero for 02:00:00:00:00:01.
	MAC [6]byte
}

// Device is a fake igb. Fields are set before the driver has it, or inside With.
type Device struct {
	*fakepci.Function
	// OnSend takes the frames that are sent. It is called with the device's lock held.
	OnSend func(Sent)
	// OnEnable is called, without the lock, after receiving was switched on.
	OnEnable func()
	// OnMail answers the messages of a virtual function; nil for what a sound driver of
	// the physical function answers.
	OnMail func(message [16]uint32) (answer [16]uint32, answers bool)
	// NVM is the first words of the NVM.
	NVM [64]uint16
	// PHY has its registers.
	PHY [32]uint16

	options  Options
	rings    [16]ring
	causes   uint32
	resets   int
	messages []uint32
	vf       mailbox
}

// Log counts what a device has seen.
type Log struct {
	fakepci.Log
	Resets   int // by CTRL
	Messages []uint32
}

// ring is the device's state of a queue besides its registers.
type ring struct {
	receive, send fakepci.Window
	contexts      [2][2]uint64
}

// New makes a device.
func New(o Options) (*Device, error) {
	o.Device, o.Vectors, o.MAC = cmp.Or(o.Device, 0x10c9), cmp.Or(o.Vectors, 25), cmp.Or(o.MAC, [6]byte{2, 0, 0, 0, 0, 1})
	d := &Device{options: o}
	p := fakepci.Options{Vendor: 0x8086, Device: o.Device, Vectors: o.Vectors, MSIXBAR: 3, MSIXPending: 0x2000,
		Bytes: registerBytes, Extra: map[int]uint64{3: 0x4000}}
	if o.Mapped {
		p.Mapped = []vfio.Area{{Offset: 0xc000, Size: 0x3000}}
	}
	var err error
	if d.Function, err = fakepci.New(d, p); err != nil {
		return nil, err
	}
	for i := range 3 {
		d.NVM[i] = binary.LittleEndian.Uint16(o.MAC[2*i:])
	}
	d.PHY = [32]uint16{0: 0x1140, 1: 0x796d, 2: 0x02a8, 3: 0x0391}
	d.vf.bits = mailResetDone
	d.PowerOn()
	return d, nil
}

// PowerOn implements fakepci.Model. CTRL.RST does the same.
func (d *Device) PowerOn() {
	clear(d.Registers)
	d.rings, d.causes = [16]ring{}, 0
	d.Set(STATUS, 1<<19) // it may do requests
	d.Set(EECD, 1<<8|1<<9)
	d.Set(RAL, binary.LittleEndian.Uint32(d.options.MAC[:]))
	d.Set(RAH, uint32(binary.LittleEndian.Uint16(d.options.MAC[4:]))|1<<31)
	d.Set(CTRL, 1<<3)
}

// Log returns what the device has seen.
func (d *Device) Log() Log {
	l := Log{Log: d.Function.Log()}
	d.Locked(func() { l.Resets, l.Messages = d.resets, d.messages })
	return l
}

// SetLink makes the link go up or down.
func (d *Device) SetLink(up bool) {
	d.With(func() {
		if d.Set(STATUS, d.Get(STATUS)&^2); up {
			d.Set(STATUS, d.Get(STATUS)|statusUp)
		}
	})
}

func (d *Device) On() string {
	for q := range d.rings {
		if d.Get(RXDCTL+0x40*uint64(q))&(1<<25) != 0 {
			return fmt.Sprintf("ring %d", q)
		}
	}
	return ""
}

func (d *Device) Forget() { d.rings = [16]ring{} }

func (d *Device) WriteRegion(index int, offset uint64, p []byte) error {
	err := d.Function.WriteRegion(index, offset, p)
	if err == nil && index == vfio.RegionBAR0 && offset == RCTL && p[0]&2 != 0 && d.OnEnable != nil {
		d.OnEnable()
	}
	return err
}
