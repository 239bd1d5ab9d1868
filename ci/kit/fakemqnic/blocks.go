package fakemqnic

// Where blocks are: in BAR0, and from the control blocks of an interface on.
const (
	FirmwareID, IRQConfig, Interfaces = 0x00, 0x40, 0x50
	PHC, Flash                        = 0x100, 0x340

	IFControl, EQManager, CQManager, TXManager, RXManager = 0x00, 0x40, 0x60, 0x80, 0xa0
	QueueMap, Port, portControl, SchedulerBlock           = 0x100, 0x1000, 0x1010, 0x2000
	Scheduler                                             = 0x2010
)

// Control returns where the control blocks of an interface are in BAR0.
func (d *Device) Control(k int) uint64 { return d.interfaces[k].start + d.unit }

// PortControl returns where the control block of the port of an interface is.
func (d *Device) PortControl(k int) uint64 { return d.Control(k) + portControl }

// Table returns where the indirection table of an interface is.
func (d *Device) Table(k int) uint64 { return d.interfaces[k].start + 2*d.unit }

// EQ, CQ, TX and RX return where the registers of a queue are; Channel is that of a transmit queue
// in the scheduler.
func (d *Device) EQ(k, i int) uint64 { return d.interfaces[k].start + 3*d.unit + 16*uint64(i) }
func (d *Device) CQ(k, i int) uint64 { return d.interfaces[k].start + 4*d.unit + 16*uint64(i) }
func (d *Device) TX(k, i int) uint64 { return d.interfaces[k].start + 8*d.unit + 32*uint64(i) }
func (d *Device) RX(k, i int) uint64 { return d.interfaces[k].start + 12*d.unit + 32*uint64(i) }
func (d *Device) Channel(k, i int) uint64 {
	return d.interfaces[k].start + 16*d.unit + 4*uint64(i)
}

// block writes a register block: type, version, next, and what follows.
func (d *Device) block(at uint64, kind, version uint32, next uint64, fields ...uint32) {
	for i, v := range append([]uint32{kind, version, uint32(next)}, fields...) {
		d.Set(at+4*uint64(i), v)
	}
}

// global writes the global chain. It has blocks that a driver does not know.
func (d *Device) global() {
	app := uint32(0xc005)
	if d.options.App == 0 {
		app = 0
	}
	d.block(FirmwareID, 0xffffffff, 0x100, IRQConfig, 0x04b37093, 0x12340001, 0x01000000, 0x10ee90c8, 0x01000000, 1701475200, 0x1ca0151b, 0)
	d.block(IRQConfig, 0xc007, 0x100, Interfaces, 10)
	d.block(Interfaces, 0xc000, 0x100, 0x70, 0, uint32(d.options.Interfaces), uint32(d.stride), uint32(d.unit))
	d.block(0x70, app, 0x200, 0x80, d.options.App)
	d.block(0x80, 0xc006, 0x100, PHC, 0x20000, 4096, 8, 0)
	d.block(PHC, 0xc080, 0x200, 0x200)
	d.block(0x200, 0xc008, 0x100, 0x300, 0, 0, 0x40001, 250_000_000)
	d.block(0x300, 0xc100, 0x100, 0x320, 0, 0)
	d.block(0x320, 0xc110, 0x900, Flash, 0) // a version that is yet to come
	d.block(Flash, 0xc120, 0x200, 0, 2|1<<4|0<<8|16<<12)
}

// blocks writes the chains of the interface at start.
func (d *Device) blocks(start uint64) {
	o, c := d.options, d.unit
	at := start + c
	n := uint32(o.Queues)
	d.block(at+IFControl, 0xc001, 0x400, c+EQManager, o.Features, 1, 1, 0, 0, o.MaxFrame, o.MaxFrame, 0, 0, 32<<10, 128<<10)
	d.block(at+EQManager, 0xc010, 0x400, c+CQManager, uint32(3*c), n, 16)
	d.block(at+CQManager, 0xc020, 0x400, c+TXManager, uint32(4*c), 2*n, 16)
	d.block(at+TXManager, 0xc030, 0x400, c+RXManager, uint32(8*c), n, 32)
	d.block(at+RXManager, 0xc031, 0x400, c+QueueMap, uint32(12*c), n, 32)
	d.block(at+QueueMap, 0xc090, 0x200, c+Port, 6<<8|1, uint32(2*c), 0, 0)
	d.block(at+Port, 0xc002, 0x200, c+SchedulerBlock, uint32(c+portControl))
	d.block(at+portControl, 0xc003, 0x300, 0, 3, 1<<16, 1<<16, 0, 0)
	d.block(at+SchedulerBlock, 0xc004, 0x300, 0, uint32(c+Scheduler))
	d.block(at+Scheduler, 0xc040, 0x100, 0, uint32(16*c), n, 4, 0, 0)
}
