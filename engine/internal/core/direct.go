package core

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// direct tells the peer of the operations that it may carry out by itself (SPEC.md 8.15).
type direct struct {
	Port Lender // nil: the wire does not let its ends copy
	// Open: no program, host or viewer of this end has a say in operations.
	Open bool
}

// table is the one that the peer reads, nil if there is none.
func (d *direct) table() *datasheet.DirectTable {
	if d.Port == nil {
		return nil
	}
	return d.Port.Table()
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
	d.Port.Settle()
}

// setEndpoint has the peer know the key and the tag of an endpoint, or, with zero, nothing.
func (d *direct) setEndpoint(id uint32, word uint64) {
	if t := d.table(); t != nil && id < datasheet.DirectEndpoints && t.Endpoints[id] != word {
		atomic.StoreUint64(&t.Endpoints[id], word)
	}
}

// Connected tells the peer of an endpoint that is connected to it.
func (d *direct) Connected(ep *Endpoint) {
	if ep.Rights != 0 {
		d.setEndpoint(ep.ID, datasheet.DirectEndpoint(ep.Remote.OurKey, ep.Ptag))
	}
}

// disconnected takes an endpoint back.
func (d *direct) disconnected(ep *Endpoint) {
	if d.Port != nil && ep.Rights != 0 {
		d.setEndpoint(ep.ID, 0)
		d.Port.Settle()
	}
}

// entry is the place of a region in the table, nil if it has none.
func (d *direct) entry(handle uint32) *datasheet.DirectRegion {
	if t, i := d.table(), handle&RegionIndexMask; t != nil && i < datasheet.DirectRegions {
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

// show tells the peer of a region whose memory is w, if it has been given that and an entry is
// there. It reports whether it has.
func (d *direct) show(e datasheet.DirectRegion, w []byte) bool {
	at := d.entry(e.Handle)
	if at == nil || w == nil {
		return false
	}
	id, offset, ok := d.Port.Where(w)
	if ok {
		e.Memory, e.Offset = id, offset
		at.Store(&e)
	}
	return ok
}
