package fakemqnic

import "github.com/trapeze-nic/trapeze/ci/kit/fakepci"

// queue is the state of an event, completion, transmit or receive queue.
type queue struct {
	base               uint64
	log, block         uint32
	target             uint32
	on, armed          bool
	producer, consumer uint16
	window             fakepci.Window
}

func (q *queue) size() uint32 { return 1 << q.log }

// kinds of queues, in the order of what they report to.
const (
	eq = iota
	cq
	tx
	rx
)

// place is where a register is: the interface, the kind of queue, its number, and the offset in its
// registers.
type place struct {
	k, kind, i int
	offset     uint64
}

// find returns the queue that a register belongs to, nil if it is none's.
func (d *Device) find(offset uint64) (*queue, place) {
	k := int(offset / d.stride)
	if k >= len(d.interfaces) {
		return nil, place{}
	}
	f := &d.interfaces[k]
	at := offset - f.start
	for _, r := range [...]struct {
		from, to, each uint64
		kind           int
		list           []queue
	}{{3, 4, 16, eq, f.eq}, {4, 8, 16, cq, f.cq}, {8, 12, 32, tx, f.tx}, {12, 16, 32, rx, f.rx}} {
		if at < r.from*d.unit || at >= r.to*d.unit {
			continue
		}
		i := int((at - r.from*d.unit) / r.each)
		if i < len(r.list) {
			return &r.list[i], place{k, r.kind, i, at % r.each}
		}
	}
	return nil, place{}
}

func (d *Device) ReadRegister(offset uint64) uint32 {
	q, p := d.find(offset)
	if q == nil {
		return d.Get(offset)
	}
	bit := func(on bool, n int) uint32 {
		if on {
			return 1 << n
		}
		return 0
	}
	ring := p.kind == tx || p.kind == rx
	pointers := uint32(q.producer) | uint32(q.consumer)<<16
	switch {
	case p.offset == 0:
		return uint32(q.base)
	case p.offset == 4:
		return uint32(q.base >> 32)
	case p.offset == 8 && ring:
		return bit(q.on, 0) | bit(q.on, 3)
	case p.offset == 8:
		return q.target&0xffff | bit(q.on, 16) | bit(q.armed, 17) | bit(q.on, 19) | q.log<<28
	case p.offset == 12 && ring:
		return q.target&0xffffff | q.log<<24 | q.block<<28
	case p.offset == 12, p.offset == 16 && ring:
		return pointers
	}
	return 0
}

// Write does what a sound device does when a register is written, inside With.
func (d *Device) Write(offset uint64, v uint32) {
	q, p := d.find(offset)
	switch {
	case q == nil:
		d.writeBlock(offset, v)
	case p.offset == 0 && !q.on:
		q.base = q.base&^0xffffffff | uint64(v&^0xfff)
		q.window = fakepci.Window{}
	case p.offset == 4 && !q.on:
		q.base = q.base&0xffffffff | uint64(v)<<32
		q.window = fakepci.Window{}
	case p.offset == 8:
		d.command(q, p, v)
	}
}

// point is the part of a command that moves a pointer. It reports whether the command was one.
func (q *queue) point(v uint32) bool {
	switch v >> 16 {
	case 0x8080:
		q.producer = uint16(v)
	case 0x8090, 0x8091:
		q.consumer = uint16(v)
	default:
		return false
	}
	return true
}

// command is a write to the command register of a queue.
func (d *Device) command(q *queue, p place, v uint32) {
	ring := p.kind == tx || p.kind == rx
	switch {
	case v>>16 == 0x8080 && q.on && !ring, v>>16 == 0x8090 && q.on && ring:
		return // not while it is on
	case v>>16 == 0x8002 && !q.on:
		q.log = v & 15
		if ring {
			q.block = min(v>>8&3, 3)
		}
	case v>>24 == 0xc0 && !q.on:
		q.target = v & 0xffffff
	case v == 0x40000101:
		q.on = true
	case v == 0x40000100:
		q.on, q.armed = false, false
	case v&^1 == 0x40000200:
		q.armed = v&1 != 0
	case q.point(v):
		q.armed = q.armed || v>>16 == 0x8091
	}
	switch {
	case p.kind == tx:
		d.transmit(p.k, p.i)
	case !ring && q.armed && q.producer != q.consumer:
		d.fire(q, p)
	}
}

// fire disarms a queue and reports it: a completion queue to its event queue, an event queue by its
// vector.
func (d *Device) fire(q *queue, p place) {
	q.armed = false
	if p.kind == eq {
		d.Interrupt(int(q.target))
		return
	}
	if int(q.target) < len(d.interfaces[p.k].eq) {
		d.Event(p.k, int(q.target), 0, uint16(p.i))
	}
}

// writeBlock is a write to a register of a block, a table or a channel.
func (d *Device) writeBlock(offset uint64, v uint32) {
	for k := range d.interfaces {
		port := d.PortControl(k)
		if offset == port+0x10 || offset == port+0x14 {
			v = v&^(1<<16) | d.Get(offset)&(1<<16)
		}
	}
	d.Set(offset, v)
	for k := range d.interfaces {
		if offset == d.Control(k)+Scheduler+0x18 || offset >= d.Channel(k, 0) && offset < d.Channel(k, d.options.Queues) {
			for i := range d.interfaces[k].tx {
				d.transmit(k, i)
			}
		}
	}
}
