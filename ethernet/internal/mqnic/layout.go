package mqnic

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// card has the contents of the global chain, which all interfaces have in common.
type card struct {
	board                uint32
	interfaces           uint32
	offset, stride, ctrl uint64 // of interfaces, and of the control blocks inside one
	app                  uint32 // 0 for no application
	irq                  *block
	end                  uint64 // of BAR0
}

// readCard reads the global chain of a BAR0 of size bytes.
func (r *registers) readCard(size uint64) (*card, error) {
	r.alive()
	list, err := r.chain(0, 0, size)
	if err != nil {
		return nil, err
	}
	c := &card{end: size}
	id, err := need(list, kindFirmware, size)
	if err != nil {
		return nil, err
	}
	iface, err := need(list, kindIF, size)
	if err != nil {
		return nil, err
	}
	if c.irq, err = one(list, kindIRQ, size); err != nil {
		return nil, err
	}
	app, err := one(list, kindApp, size)
	if err != nil {
		return nil, err
	}
	if app != nil {
		c.app = r.Read(app.at + 0x0c)
	}
	c.board = r.Read(id.at + 0x18)
	c.offset, c.interfaces = uint64(r.Read(iface.at+0x0c)), r.Read(iface.at+0x10)
	c.stride, c.ctrl = uint64(r.Read(iface.at+0x14)), uint64(r.Read(iface.at+0x18))
	if err := r.Err(); err != nil {
		return nil, err
	}
	return c, c.check()
}

// check refuses interfaces that are not in the BAR.
func (c *card) check() error {
	switch n := uint64(c.interfaces); {
	case n == 0:
		return fmt.Errorf("%w: it has no interfaces", ethernet.ErrProtocol)
	case c.stride == 0, c.offset > c.end, n > (c.end-c.offset)/c.stride:
		return fmt.Errorf("%w: %d interfaces, %#x bytes each from %#x, do not fit into %#x bytes", ethernet.ErrProtocol, n, c.stride, c.offset, c.end)
	case c.ctrl >= c.stride:
		return fmt.Errorf("%w: the control blocks at %#x are not in the %#x bytes of an interface", ethernet.ErrProtocol, c.ctrl, c.stride)
	}
	return nil
}

// manager has the queues of a kind.
type manager struct {
	name   string
	at     uint64 // of the first queue in BAR0
	count  uint32
	stride uint64
}

// queue returns where the registers of a queue are.
func (m manager) queue(i uint32) uint64 { return m.at + uint64(i)*m.stride }

// end returns where the registers of the last queue end.
func (m manager) end() uint64 { return m.queue(m.count) }

// layout has the contents of the chains of an interface.
type layout struct {
	blocks         []block
	features       uint32
	maxTX, maxRX   uint32 // bytes of the longest frames
	ctrl           uint64 // of IF_CTRL
	eq, cq, tx, rx manager
	queueMap       uint64
	table          uint64   // of the first port, in BAR0
	entries        uint32   // of the table
	ports          []uint64 // of PORT_CTRL of each port
	schedulers     []scheduler
}

// scheduler has a channel for each transmit queue.
type scheduler struct {
	at       uint64
	channels manager
}

// readInterface reads the chains of interface i.
func (r *registers) readInterface(c *card, i uint32) (*layout, error) {
	start := c.offset + uint64(i)*c.stride
	end := start + c.stride
	list, err := r.chain(start, c.ctrl, end)
	if err != nil {
		return nil, err
	}
	ctrl, err := need(list, kindIFCtrl, end)
	if err != nil {
		return nil, err
	}
	l := &layout{blocks: list, ctrl: ctrl.at, features: r.Read(ctrl.at + ifFeatures), maxTX: r.Read(ctrl.at + ifMaxTX), maxRX: r.Read(ctrl.at + ifMaxRX)}
	for _, m := range []struct {
		to    *manager
		k     kind
		least uint64 // bytes of the registers of a queue
	}{{&l.eq, kindEQ, 16}, {&l.cq, kindCQ, 16}, {&l.tx, kindTX, 32}, {&l.rx, kindRX, 32}} {
		b, err := need(list, m.k, end)
		if err != nil {
			return nil, err
		}
		if *m.to, err = r.readManager(b.at, m.k.name, start, end, m.least); err != nil {
			return nil, err
		}
	}
	if err := r.readMap(l, start, end); err != nil {
		return nil, err
	}
	if err := r.readPorts(l, start, end); err != nil {
		return nil, err
	}
	if err := r.readSchedulers(l, start, end); err != nil {
		return nil, err
	}
	return l, l.overlap()
}

// readManager reads offset, count and stride, which stand from 0C on in the blocks of queues.
func (r *registers) readManager(at uint64, name string, start, end, least uint64) (manager, error) {
	m := manager{name: name, at: start + uint64(r.Read(at+0x0c)), count: r.Read(at + 0x10), stride: uint64(r.Read(at + 0x14))}
	if err := r.Err(); err != nil {
		return m, err
	}
	switch {
	case m.count == 0:
		return m, fmt.Errorf("%w: %s has no queues", ethernet.ErrProtocol, name)
	case m.at%4 != 0 || m.stride%4 != 0 || m.stride < least:
		return m, fmt.Errorf("%w: the queues of %s at %#x are %#x bytes apart, want %#x", ethernet.ErrProtocol, name, m.at, m.stride, least)
	case m.at > end || uint64(m.count) > (end-m.at)/m.stride:
		return m, fmt.Errorf("%w: the %d queues of %s, from %#x on, do not end below %#x", ethernet.ErrProtocol, m.count, name, m.at, end)
	}
	return m, nil
}

// overlap refuses queues that share registers.
func (l *layout) overlap() error {
	list := []manager{l.eq, l.cq, l.tx, l.rx, {name: "RX_QUEUE_MAP", at: l.table, count: l.entries, stride: 4}}
	for _, s := range l.schedulers {
		list = append(list, s.channels)
	}
	slices.SortFunc(list, func(a, b manager) int { return cmp.Compare(a.at, b.at) })
	for i := range list[1:] {
		if a, b := list[i], list[i+1]; a.end() > b.at {
			return fmt.Errorf("%w: the registers of %s and %s overlap at %#x", ethernet.ErrProtocol, a.name, b.name, b.at)
		}
	}
	return nil
}

// readMap reads where the indirection table of the first port is.
func (r *registers) readMap(l *layout, start, end uint64) error {
	b, err := need(l.blocks, kindQueueMap, end)
	if err != nil {
		return err
	}
	sizes := r.Read(b.at + mapSizes)
	l.queueMap, l.table = b.at, start+uint64(r.Read(b.at+mapPorts))
	if err := r.Err(); err != nil {
		return err
	}
	// A table has at most 256 entries (mqnic_rx_queue_map.v).
	log := sizes >> 8 & 0xff
	l.entries = 1 << min(log, 31)
	if sizes&0xff == 0 || log > 8 || l.table%4 != 0 || l.table > end || end-l.table < 4*uint64(l.entries) {
		return fmt.Errorf("%w: an indirection table of 2^%d entries at %#x for %d ports", ethernet.ErrProtocol, log, l.table, sizes&0xff)
	}
	return nil
}

// readPorts finds the control blocks of the ports.
func (r *registers) readPorts(l *layout, start, end uint64) error {
	return r.each(l, kindPort, kindPortCtrl, start, end, func(b block) error {
		l.ports = append(l.ports, b.at)
		return nil
	})
}

// readSchedulers finds the round-robin schedulers.
func (r *registers) readSchedulers(l *layout, start, end uint64) error {
	return r.each(l, kindSchedule, kindScheduler, start, end, func(b block) error {
		m, err := r.readManager(b.at, kindScheduler.name, start, end, 4)
		l.schedulers = append(l.schedulers, scheduler{b.at, m})
		return err
	})
}

// each walks the chain that each block of a kind leads to, and calls found with the inner block.
func (r *registers) each(l *layout, outer, inner kind, start, end uint64, found func(block) error) error {
	list, err := all(l.blocks, outer, end)
	if err == nil && len(list) == 0 {
		err = missing(l.blocks, outer)
	}
	if err != nil {
		return err
	}
	for _, b := range list {
		chain, err := r.chain(start, uint64(r.Read(b.at+0x0c)), end)
		if err != nil {
			return err
		}
		one, err := need(chain, inner, end)
		if err != nil {
			return err
		}
		if err := found(one); err != nil {
			return err
		}
	}
	return nil
}
