package emulator

import (
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// Sharing says which of a device's DMA memory its peer can read. Payloads that
// lie in the rest are copied into the wire: those of mappings beyond the 64 that a
// wire exports, even once others have gone, and those in the memory of vfio-user
// clients (MapWindow) and in vfio.ForeignMemory. A wire with faults shares nothing.
type Sharing struct {
	// On says that this end of the wire shares memory.
	On bool
	// Exported and Copied count mappings that the peer may read, and those that it
	// could not be given.
	Exported, Copied int
	// Err is why memory could not be given to the peer, or was not given back by it,
	// the last time that this happened; nil if it never did.
	Err error
}

// sharing keeps which memory a device has exported. Device.maps is held.
type sharing struct {
	to      *wire.SHM           // nil: the wire shares nothing
	exports map[uint64]uint32   // by IOVA
	kept    map[uint64]struct{} // IOVAs of memory that could not be exported
	err     error
}

// Sharing returns what of the device's DMA memory its peer can read.
func (d *Device) Sharing() Sharing {
	d.maps.Lock()
	defer d.maps.Unlock()
	s := &d.sharing
	return Sharing{On: s.to != nil, Exported: len(s.exports), Copied: len(s.kept), Err: s.err}
}

func newSharing(w wire.Port) sharing {
	s := sharing{exports: map[uint64]uint32{}, kept: map[uint64]struct{}{}}
	if p, ok := w.(*wire.SHM); ok && p.Shares() {
		s.to = p
	}
	return s
}

// share lets the peer read memory that the device may read. If that fails, the mapping
// is not refused, and payloads in it are copied. maps is held.
func (d *Device) share(mem *vfio.Memory, iova uint64, flags vfio.DMAFlags) {
	s := &d.sharing
	if s.to == nil || flags&vfio.DMARead == 0 {
		return
	}
	if mem.FD() < 0 { // there is no file that the peer could map
		s.kept[iova] = struct{}{}
		return
	}
	id, err := s.to.Export(mem.FD(), 0, mem.Bytes())
	if err != nil {
		s.err = err
		s.kept[iova] = struct{}{}
		return
	}
	s.exports[iova] = id
}

// unshare takes memory back from the peer, after the engine has ceased to use it. Once
// it has returned, nothing that the peer reads there is delivered. maps is held.
func (d *Device) unshare(iova uint64) {
	s := &d.sharing
	delete(s.kept, iova)
	id, ok := s.exports[iova]
	if !ok {
		return
	}
	delete(s.exports, iova)
	if err := s.to.Unexport(id); err != nil {
		s.err = err // the peer has been disconnected
	}
}

// unshareAll takes back all memory. maps is held.
func (d *Device) unshareAll() {
	clear(d.sharing.kept)
	for iova := range d.sharing.exports {
		d.unshare(iova)
	}
}

// revoke takes back what the device has lent to its peer.
func (d *Device) revoke() {
	if l, ok := d.wire.(engine.Lender); ok {
		d.engine.Exclusive(func() { l.Revoke(0) })
	}
}
