package engine

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// direct is what this end lets its peer carry out by itself, and whether it may do so with the
// peer's memory (SPEC.md 8.15).
type direct struct {
	port Direct // nil: the wire does not let its ends copy
	// open: nobody here has a say in how operations are carried out, or wants to see them.
	open bool
}

// newDirect looks whether a port lets its ends copy.
func newDirect(l *link) (d direct) {
	if p, ok := l.port.(Direct); ok && l.lossless != nil {
		d.port = p
	}
	return d
}

// table is what the peer reads, nil if there is nothing to tell.
func (d *direct) table() *descriptors.DirectTable {
	if d.port == nil {
		return nil
	}
	return d.port.Table()
}

// clear takes everything back.
func (d *direct) clear() {
	t := d.table()
	if t == nil {
		return
	}
	for i := range t.Regions {
		if e := &t.Regions[i]; e.Handle != 0 {
			e.Clear()
		}
	}
	for i := range t.Endpoints {
		d.setEndpoint(uint32(i), 0)
	}
	d.port.Settle()
}

// setEndpoint has the peer know the key and the tag of an endpoint, or, with zero, nothing.
func (d *direct) setEndpoint(id uint32, word uint64) {
	if t := d.table(); t != nil && id < descriptors.DirectEndpoints && t.Endpoints[id] != word {
		atomic.StoreUint64(&t.Endpoints[id], word)
	}
}

// connected tells the peer of an endpoint that is connected to it.
func (d *direct) connected(ep *endpoint) {
	if ep.rights != 0 {
		d.setEndpoint(ep.id, descriptors.DirectEndpoint(ep.remote.ourKey, ep.ptag))
	}
}

// disconnected takes an endpoint back.
func (d *direct) disconnected(ep *endpoint) {
	if d.port != nil && ep.rights != 0 {
		d.setEndpoint(ep.id, 0)
		d.port.Settle()
	}
}

// entry is the place of a region in the table, nil if it has none.
func (d *direct) entry(handle uint32) *descriptors.DirectRegion {
	if t, i := d.table(), handle&regionIndexMask; t != nil && i < descriptors.DirectRegions {
		return &t.Regions[i]
	}
	return nil
}

// hide takes a region back. It reports whether the peer knew of it.
func (d *direct) hide(handle uint32) bool {
	e := d.entry(handle)
	if e == nil || handle == 0 || e.Handle != handle {
		return false
	}
	e.Clear()
	return true
}

// publish tells the peer of a region, if it may read it or write to it and has been given
// all of it.
func (m *regions) publish(r *region) {
	e := m.direct.entry(r.handle)
	if e == nil || r.handle == 0 || r.device || r.eager != nil || r.access&(descriptors.AccessRDMAWrite|descriptors.AccessRDMARead) == 0 {
		return
	}
	w := m.contiguous(r)
	if w == nil {
		return
	}
	if id, offset, ok := m.direct.port.Where(w); ok {
		r.shown = w
		e.Store(&descriptors.DirectRegion{Handle: r.handle, Access: r.access, Ptag: r.ptag, Memory: id,
			Address: r.address, Length: r.length, Offset: offset})
	}
}

// withdraw takes a region back, and waits until the peer does not use it any more.
func (m *regions) withdraw(handle uint32) {
	if m.direct.hide(handle) {
		m.direct.port.Settle()
	}
}

// republish brings what the peer is told up to date with the bus.
func (m *regions) republish() {
	if m.direct.table() == nil {
		return
	}
	hidden := false
	for i := range m.table {
		if r := &m.table[i]; r.handle != 0 && r.shown != nil {
			if w := m.contiguous(r); w == nil || &w[0] != &r.shown[0] {
				r.shown, hidden = nil, m.direct.hide(r.handle) || hidden
			}
		}
	}
	if hidden {
		m.direct.port.Settle()
	}
	for i := range m.table {
		if r := &m.table[i]; r.handle != 0 && r.shown == nil {
			m.publish(r)
		}
	}
}

// contiguous is the memory of a region of the host's, if it is in one piece for us and the bus
// lets us do what the region's rights allow; else nil.
func (m *regions) contiguous(r *region) []byte {
	w, err := m.bus.Window(r.iova, r.length, false)
	if err == nil && r.access&descriptors.AccessReadOnly == 0 {
		w, err = m.bus.Window(r.iova, uint64(len(w)), true)
	}
	if err != nil || uint64(len(w)) < r.length {
		return nil
	}
	return w[:r.length]
}

// welcome lets the peer carry out operations unless somebody here has a say in them. What
// changes that calls it.
func (c *core) welcome() {
	d := &c.regions.direct
	if d.port == nil {
		return
	}
	d.open = c.hooks == 0 && !c.timed && !c.dma.chosen && !c.dma.log.on && c.dma.pulses == [directions]bool{}
	d.port.Welcome(d.open)
}

// carriedPerRound is after how many operations without a frame the doorbell does a round: the
// peer is to be heard, and told that this end lives.
const carriedPerRound = 32

// carry carries out m, an operation that has begun, if nothing before it is under way and the
// peer lets this end copy. It returns false if m has to go in frames.
func (r *reliable) carry(m *sending) bool {
	d := &r.nic.regions.direct
	if !d.open || r.wire == 0 || r.next-r.head != 1 || m.cut != 0 && m.frames != descriptors.FrameReadRequest ||
		m.allCut || m.total == 0 || m.takesReceive() {
		return false
	}
	table := d.port.Begin(r.wire)
	if table == nil {
		return false
	}
	done := r.copy(table, m)
	d.port.End()
	if !done {
		return false
	}
	if m.frames == descriptors.FrameReadRequest {
		r.reading--
		m.awaits = 0
	}
	m.allCut = true
	r.nic.carried++
	r.delivered(m)
	return true
}

// copy does so, after the checks that the peer's engine makes.
func (r *reliable) copy(table *descriptors.DirectTable, m *sending) bool {
	to, at, ep := &r.ep.remote, m.target(), r.ep
	i := at.handle & regionIndexMask
	if to.endpoint >= descriptors.DirectEndpoints || i >= descriptors.DirectRegions || at.handle == 0 {
		return false
	}
	word := atomic.LoadUint64(&table.Endpoints[to.endpoint])
	entry := &table.Regions[i]
	var e descriptors.DirectRegion
	if uint32(word>>32) != to.theirKey || !entry.Load(at.handle, &e) || e.Ptag != uint32(word) {
		return false
	}
	write := m.frames == descriptors.FrameWrite
	right := descriptors.AccessRDMARead
	if write {
		right = descriptors.AccessRDMAWrite
	}
	off, n := at.address-e.Address, uint64(m.total)
	if e.Access&right == 0 || off > e.Length || n > e.Length-off || e.Offset+off < off {
		return false
	}
	theirs := r.nic.regions.direct.port.Reach(e.Memory, e.Offset+off, n, write)
	if theirs == nil {
		return false
	}
	if write {
		return r.nic.regions.gather(theirs, &m.layout, 0, ep.ptag) == 0
	}
	_, st := r.nic.regions.scatter(theirs, &m.layout, 0, ep.ptag)
	return st == 0 && entry.Load(at.handle, &e)
}
