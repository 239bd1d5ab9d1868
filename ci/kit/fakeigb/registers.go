package fakeigb

import "github.com/trapeze-nic/trapeze/ci/kit/fakepci"

// ReadRegister implements fakepci.Model, as a sound device does.
func (d *Device) ReadRegister(offset uint64) uint32 {
	offset = d.Place(offset)
	v := d.Get(offset)
	switch {
	case offset == Mailbox && d.virtual():
		v = d.vf.bits
		d.vf.bits &^= mailArrived | mailAcked | mailResetDone
	case offset == SWSM: // reading takes the semaphore of drivers
		d.Set(offset, v|1)
	case offset == ICR, offset >= 0x4000 && offset < 0x4100:
		d.Set(offset, 0)
	}
	return v
}

// Write acts as a sound device when a register is written, inside With.
func (d *Device) Write(offset uint64, v uint32) {
	offset = d.Place(offset)
	old := d.Get(offset)
	d.Set(offset, v)
	queue := int(offset>>6) & 15
	switch {
	case offset == CTRL && v&(1<<26) != 0:
		d.resets++
		up := d.Get(STATUS) & 2
		if d.PowerOn(); d.virtual() {
			d.Set(STATUS, d.Get(STATUS)|up)
		}
	case offset == CTRL:
		d.Set(STATUS, d.Get(STATUS)|1<<19)
		if v&4 != 0 { // no more requests
			d.Set(STATUS, d.Get(STATUS)&^(1<<19))
		}
	case offset == EERD, offset == 0x12014:
		if v&1 != 0 {
			d.Set(offset, v|2|uint32(d.NVM[v>>2&63])<<16)
		}
	case offset == MDIC:
		d.mdic(v)
	case offset == EIMS:
		d.Set(EIMS, old|v)
		d.raise(0)
	case offset == EIMC:
		d.Set(EIMS, d.Get(EIMS)&^v)
	case offset == Mailbox && d.virtual():
		d.mail(v)
	case offset&^0x3c0 == TDT:
		d.sendAll(queue)
	case offset&^0x3c0 == RXDCTL, offset&^0x3c0 == TXDCTL:
		d.rings[queue].receive, d.rings[queue].send = fakepci.Window{}, fakepci.Window{}
	}
}

// mdic is the bus to the PHY, at address 1, whose link comes up at once.
func (d *Device) mdic(v uint32) {
	const ready, bad = 1 << 28, 1 << 30
	reg := v >> 16 & 31
	switch {
	case v>>21&31 != 1:
		v |= bad
	case v&(2<<26) != 0:
		v = v&^0xffff | uint32(d.PHY[reg])
	case v&(1<<26) != 0:
		d.PHY[reg] = uint16(v) &^ (1<<9 | 1<<15)
		if reg == 0 && v&(1<<9|1<<12) == 1<<9|1<<12 {
			d.Set(STATUS, d.Get(STATUS)|statusUp)
		}
	}
	d.Set(MDIC, v|ready)
}

// raise notes causes, and raises the vectors of those that are not masked. A vector is
// masked as it is raised.
func (d *Device) raise(causes uint32) {
	d.causes |= causes
	for v := range 25 {
		if bit := uint32(1) << v; d.causes&d.Get(EIMS)&bit != 0 {
			d.causes &^= bit
			d.Set(EIMS, d.Get(EIMS)&^bit)
			d.Interrupt(v)
		}
	}
}

// cause is the vector of a queue's ring, as a bit; 0 for none. It reads IVAR as an 82576
// does.
func (d *Device) cause(queue int, send bool) uint32 {
	shift := queue & 8 << 1
	if send {
		shift += 8
	}
	v := d.Get(IVAR+4*uint64(queue&7)) >> shift
	if v&0x80 == 0 {
		return 0
	}
	return 1 << (v & 31)
}
