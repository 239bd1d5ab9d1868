package igb

import (
	"context"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

const intel = 0x8086

// family has the differences between models.
type family struct {
	name string
	// queues is the number of receive and of send queues.
	queues int
	// pairedIVAR: a vector register is for queues 2n and 2n+1, else for n and n+8.
	pairedIVAR bool
	// eerd is the register through which words of the NVM are read, 0 for none.
	eerd uint64
	// phyInConfig: the PHY's address on the MDIO bus is in MDICNFG, else it is 1.
	phyInConfig bool
	// linkDisconnect: PHPM can hold the PHY off the wire.
	linkDisconnect bool
	// stripPerQueue: the removal of the CRC is switched on queue by queue too.
	stripPerQueue bool
	// clearRQDPC: reading the counter of frames that found no descriptor does not clear it.
	clearRQDPC bool
	// virtual: a virtual function, whose physical one has the rest.
	virtual bool
}

var (
	f82576  = family{name: "82576", queues: 16, eerd: 0x14}
	f82580  = family{name: "82580", queues: 8, pairedIVAR: true, eerd: 0x14, linkDisconnect: true}
	fI350   = family{name: "I350", queues: 8, pairedIVAR: true, eerd: 0x14, linkDisconnect: true, stripPerQueue: true}
	fI354   = family{name: "I354", queues: 8, pairedIVAR: true, eerd: 0x14, phyInConfig: true, stripPerQueue: true}
	fI210   = family{name: "I210", queues: 4, pairedIVAR: true, eerd: 0x12014, linkDisconnect: true, stripPerQueue: true, clearRQDPC: true}
	fI211   = family{name: "I211", queues: 2, pairedIVAR: true, linkDisconnect: true, stripPerQueue: true, clearRQDPC: true}
	virtual = family{name: "virtual function", queues: 1, virtual: true}
)

// models are the PCI device numbers of the copper models.
var models = []struct {
	device uint16
	name   string
	family family
	tested bool
}{
	{0x10c9, "82576", f82576, true},
	{0x10e8, "82576 quad", f82576, false},
	{0x1526, "82576 quad ET2", f82576, false},
	{0x150a, "82576NS", f82576, false},
	{0x150e, "82580", f82580, false},
	{0x1516, "82580 dual", f82580, false},
	{0x1521, "I350", fI350, false},
	{0x1f41, "I354", fI354, false},
	{0x1533, "I210", fI210, false},
	{0x157b, "I210 without flash", fI210, false},
	{0x1539, "I211", fI211, false},
	{0x10ca, "82576 virtual function", virtual, true},
	{0x1520, "I350 virtual function", virtual, false},
}

func init() {
	d := ethernet.Driver{Name: "igb", Open: func(ctx context.Context, dev vfio.Device, m ethernet.Model, c ethernet.Options) (ethernet.Port, error) {
		return open(ctx, dev, m, c)
	}}
	for _, m := range models {
		d.Models = append(d.Models, ethernet.Model{Vendor: intel, Device: m.device, Name: m.name, Tested: m.tested})
	}
	ethernet.Register(d)
}

// familyOf returns what is special about a model, which is one of the list.
func familyOf(m ethernet.Model) family {
	for _, x := range models {
		if x.device == m.Device {
			return x.family
		}
	}
	return family{}
}

// vectorField says where the vector of a queue's receive or send ring is: a register, and
// the lowest bit of eight in it.
func (f family) vectorField(queue int, send bool) (register uint64, shift int) {
	register, shift = regIVAR+4*uint64(queue&7), queue&8<<1
	if f.pairedIVAR {
		register, shift = regIVAR+4*uint64(queue/2), queue&1<<4
	}
	if send {
		shift += 8
	}
	return register, shift
}

// receiveBase and sendBase are where the registers of a queue's rings begin.
func (f family) receiveBase(queue int) uint64 {
	if f.virtual {
		return 0x2800 + 0x100*uint64(queue)
	}
	return 0xc000 + 0x40*uint64(queue)
}

func (f family) sendBase(queue int) uint64 {
	if f.virtual {
		return 0x3800 + 0x100*uint64(queue)
	}
	return 0xe000 + 0x40*uint64(queue)
}

// registerBytes is the least size of BAR0, in bytes.
func (f family) registerBytes() uint64 {
	if f.virtual {
		return 0x4000
	}
	return 0x20000
}

// offloads are those that the family has.
func (f family) offloads() ethernet.Offloads {
	if f.virtual { // the hash is switched on by the physical function
		return ethernet.OffloadAll &^ ethernet.OffloadHash
	}
	return ethernet.OffloadAll
}
