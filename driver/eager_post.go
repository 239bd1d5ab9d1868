package driver

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// eagerAtPost is the number of bytes of one segment that are pushed at a post. From there on the
// processor's stores take longer than the device's reads.
const eagerAtPost = 4096

// eagers is a work queue's memory of the regions that its descriptors named last, and of
// which of them are eager. What was found has the generation of the region table, plus one.
type eagers [4]struct {
	generation uint64
	handle     uint32
	e          *Eager
}

// find returns the writer of the region handle, nil if it is not eager.
func (s *eagers) find(handle uint32, table *regionTable) *Eager {
	at := &s[handle%uint32(len(s))]
	if generation := table.generation.Load() + 1; at.generation != generation || at.handle != handle {
		table.mu.RLock()
		defer table.mu.RUnlock()
		m := table.m[handle]
		if m == nil {
			return nil // one that takes its place must be found
		}
		at.generation, at.handle, at.e = table.generation.Load()+1, handle, nil
		if m.IsEager() {
			at.e = m.eager.Load()
		}
	}
	return at.e
}

// source has the device have the eager memory of a segment that it is going to read. It
// reports whether the segment is eager; then a flush of write combining goes ahead of the
// doorbell.
func (s *eagers) source(d datasheet.DataSegment, table *regionTable) bool {
	e := s.find(d.Handle, table)
	if e != nil {
		e.posted(d.Address, uint64(d.Length), e.mode == EagerAtPost)
	}
	return e != nil
}

// posted is called before the device may read n bytes at an application address: all says
// that the device must have their blocks as they are now, or none of them. Bytes that are not
// the memory's are left to the device, which refuses them.
func (e *Eager) posted(address, n uint64, all bool) {
	offset := address - e.first
	if n == 0 || offset > uint64(len(e.bytes)) || n > uint64(len(e.bytes))-offset {
		return
	}
	e.mu.Lock()
	switch {
	case e.closed || e.blocks == nil:
	case !all:
		e.leave()
	case n > eagerAtPost:
		e.leave()
		e.takeBack(e.Span(offset, n))
	default:
		e.pushBlocks(e.Span(offset, n))
	}
	e.mu.Unlock()
}
