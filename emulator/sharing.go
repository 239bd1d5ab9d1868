package emulator

import (
	"cmp"
	"errors"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
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
	// Writing says that it does so for writing.
	Writing bool
	// Exported and Copied count mappings that the peer may read, and those that it
	// could not be given.
	Exported, Copied int
	// Err is why memory could not be given to the peer, or was not given back by it,
	// the last time that this happened; nil if it never did. Memory that the peer may still
	// write to, as it could not be replaced, comes first.
	Err error
}

// sharing keeps which memory a device has exported. Device.maps is held.
type sharing struct {
	to      *wire.SHM           // nil: the wire shares nothing
	exports map[uint64]uint32   // by IOVA
	kept    map[uint64]struct{} // IOVAs of memory that could not be exported
	// waiting is memory that may be for the peer to write, by IOVA: the first registration
	// says so. It is not nil if the wire shares memory for writing.
	waiting map[uint64]*vfio.Memory
	err     error
}

// Sharing returns what of the device's DMA memory its peer can read.
func (d *Device) Sharing() Sharing {
	d.maps.Lock()
	defer d.maps.Unlock()
	s := &d.sharing
	now := Sharing{On: s.to != nil, Writing: s.waiting != nil, Exported: len(s.exports), Copied: len(s.kept), Err: s.err}
	if s.to != nil {
		now.Err = cmp.Or(s.to.Kept(), s.err)
	}
	return now
}

func newSharing(w wire.Port) sharing {
	s := sharing{exports: map[uint64]uint32{}, kept: map[uint64]struct{}{}}
	if p, ok := w.(*wire.SHM); ok && p.Shares() {
		s.to = p
		if p.SharesWriting() {
			s.waiting = map[uint64]*vfio.Memory{}
		}
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
	if s.waiting != nil && flags&vfio.DMAWrite != 0 {
		s.waiting[iova] = mem
		return
	}
	s.export(mem, iova, s.to.Export)
}

func (s *sharing) export(mem *vfio.Memory, iova uint64, with func(fd int, offset int64, mem []byte) (uint32, error)) {
	id, err := with(mem.FD(), 0, mem.Bytes())
	if err != nil {
		s.err = err
		s.kept[iova] = struct{}{}
		return
	}
	s.exports[iova] = id
}

// Execute carries out a command of the admin queue, for which a sharer stands before the
// engine. Where a wire shares memory for writing, a region's memory becomes the peer's before
// the engine knows the region: to write if that is the region's right, else to read.
func (s sharer) Execute(cmd *datasheet.Command) {
	if cmd.Opcode == datasheet.OpRegisterMemory {
		s.d.shareRegion(datasheet.Body[datasheet.RegisterMemoryBody](cmd))
	}
	s.Engine.Execute(cmd)
}

// sharer is an engine whose commands share memory.
type sharer struct {
	*engine.Engine
	d *Device
}

// shareRegion shares the memory that a region lies in.
func (d *Device) shareRegion(b *datasheet.RegisterMemoryBody) {
	d.maps.Lock()
	defer d.maps.Unlock()
	s := &d.sharing
	for iova, mem := range s.waiting {
		if b.IOVA-iova >= mem.Size() {
			continue
		}
		delete(s.waiting, iova)
		with := s.to.Export
		if b.Access&datasheet.AccessRDMAWrite != 0 {
			with = s.to.ExportWritable
		}
		s.export(mem, iova, with)
		return
	}
}

// unshare takes memory back from the peer, after the engine has ceased to use it. Once
// it has returned, nothing that the peer reads there is delivered. maps is held.
func (d *Device) unshare(iova uint64) {
	s := &d.sharing
	delete(s.kept, iova)
	delete(s.waiting, iova)
	id, ok := s.exports[iova]
	if !ok {
		return
	}
	delete(s.exports, iova)
	if err := s.to.Unexport(id); err != nil && !errors.Is(err, wire.ErrNotExported) { // it was detached
		s.err = err // the peer has been disconnected
	}
}

// unshareAll takes back all memory. maps is held.
func (d *Device) unshareAll() {
	clear(d.sharing.kept)
	clear(d.sharing.waiting)
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
