package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// A memory handle is a generation above an index into the region table, so
// that a stale handle is not mistaken for the region that took its place.
const (
	regionIndexBits = 20
	regionIndexMask = 1<<regionIndexBits - 1
	ptagIndexBits   = 16
	ptagIndexMask   = 1<<ptagIndexBits - 1
)

// restingSlots is how many free slots of the region table rest before one is
// used again. With 12 bits of generation a handle comes back after a million
// registrations at the earliest, as long as the table is not full.
const restingSlots = 256

// region is one registered piece of host memory.
type region struct {
	handle  uint32 // zero: free
	last    uint32 // handle that this slot had last
	ptag    uint32
	address uint64
	length  uint64
	iova    uint64
	access  descriptors.Access
	// whole is the region's memory if it is contiguous for us, looked up once
	// for each value of Engine.epoch.
	whole []byte
	epoch uint64
	tried uint64
}

// ptag is one protection tag; tag 0 always exists.
type ptag struct {
	value uint32
	live  bool
	users int
}

// reach finds the n bytes at application address in region handle on behalf of
// an endpoint with protection tag tag. It checks handle, tag, bounds and
// rights, and returns nil if any of them says no.
func (e *Engine) reach(handle, tag uint32, address, n uint64, write bool) (*region, uint64) {
	i := handle & regionIndexMask
	if int(i) >= len(e.regions) {
		return nil, 0
	}
	r := &e.regions[i]
	off := address - r.address
	if r.handle != handle || handle == 0 || r.ptag != tag || off > r.length || n > r.length-off ||
		write && r.access&descriptors.AccessReadOnly != 0 {
		return nil, 0
	}
	return r, off
}

// window returns the memory of r from offset off on, n bytes of it or as many
// as are contiguous. It returns nil if the bus refuses.
func (e *Engine) window(r *region, off, n uint64, write bool) []byte {
	if r.epoch == e.epoch {
		return r.whole[off : off+n : off+n]
	}
	return e.resolve(r, off, n, write)
}

// resolve is window for a region whose memory is not known to be contiguous.
func (e *Engine) resolve(r *region, off, n uint64, write bool) []byte {
	if r.tried != e.epoch {
		r.tried = e.epoch
		if w := e.contiguous(r); w != nil {
			r.whole, r.epoch = w, e.epoch
			return r.whole[off : off+n : off+n]
		}
		r.whole = nil
	}
	w, err := e.memory.Window(r.iova+off, n, write)
	if err != nil {
		e.count(descriptors.CounterDMAFaults, 1)
		return nil
	}
	if uint64(len(w)) > n {
		w = w[:n]
	}
	return w
}

// contiguous returns all of a region's memory if it is in one piece for us, and
// the bus lets us do everything with it that the region's rights allow.
func (e *Engine) contiguous(r *region) []byte {
	w, err := e.memory.Window(r.iova, r.length, false)
	if err == nil && r.access&descriptors.AccessReadOnly == 0 {
		w, err = e.memory.Window(r.iova, uint64(len(w)), true)
	}
	if err != nil || uint64(len(w)) < r.length {
		return nil
	}
	return w[:r.length]
}

// segment is a data segment that has been copied out of host memory.
type segment struct {
	address uint64
	handle  uint32
	length  uint32
}

// layout is the local memory of one message: its segments and where in them
// the last access ended, since most accesses go on from there.
type layout struct {
	segments []segment
	total    uint32
	at       int    // segment of the last access
	base     uint32 // message offset at which that segment starts
	checked  bool   // inline data, which was checked with the descriptor
}

// seek finds the segment that holds message offset, and how far into it.
func (l *layout) seek(offset uint32) uint32 {
	if offset < l.base {
		l.at, l.base = 0, 0
	}
	for l.at < len(l.segments) && offset-l.base >= l.segments[l.at].length {
		l.base += l.segments[l.at].length
		l.at++
	}
	return offset - l.base
}

// check looks at every segment before any byte moves.
func (e *Engine) check(l *layout, tag uint32, write bool) descriptors.Status {
	for i := range l.segments {
		s := &l.segments[i]
		if r, _ := e.reach(s.handle, tag, s.address, uint64(s.length), write); r == nil {
			e.count(descriptors.CounterProtectionErrors, 1)
			return descriptors.StatusProtectionError
		}
	}
	return 0
}

// gather copies len(dst) bytes of a message from host memory, from offset on.
func (e *Engine) gather(dst []byte, l *layout, offset uint32, tag uint32) descriptors.Status {
	skip := l.seek(offset)
	for len(dst) > 0 {
		if l.at >= len(l.segments) {
			return descriptors.StatusLengthError
		}
		s := &l.segments[l.at]
		n := min(uint64(s.length-skip), uint64(len(dst)))
		r, off := e.reach(s.handle, tag, s.address+uint64(skip), n, false)
		if r == nil {
			e.count(descriptors.CounterProtectionErrors, 1)
			return descriptors.StatusProtectionError
		}
		for n > 0 {
			w := e.window(r, off, n, false)
			if len(w) == 0 {
				return descriptors.StatusProtectionError
			}
			copy(dst, w)
			dst = dst[len(w):]
			off, n, skip = off+uint64(len(w)), n-uint64(len(w)), skip+uint32(len(w))
		}
		if skip == s.length {
			l.base += s.length
			l.at++
			skip = 0
		}
	}
	return 0
}

// scatter copies src into a message's host memory, from offset on. landed says
// whether any byte of it was written.
func (e *Engine) scatter(src []byte, l *layout, offset uint32, tag uint32) (landed bool, st descriptors.Status) {
	skip := l.seek(offset)
	for len(src) > 0 {
		if l.at >= len(l.segments) {
			return landed, descriptors.StatusLengthError
		}
		s := &l.segments[l.at]
		n := min(uint64(s.length-skip), uint64(len(src)))
		r, off := e.reach(s.handle, tag, s.address+uint64(skip), n, true)
		if r == nil {
			e.count(descriptors.CounterProtectionErrors, 1)
			return landed, descriptors.StatusProtectionError
		}
		for n > 0 {
			w := e.window(r, off, n, true)
			if len(w) == 0 {
				return landed, descriptors.StatusProtectionError
			}
			copy(w, src)
			landed = true
			src = src[len(w):]
			off, n, skip = off+uint64(len(w)), n-uint64(len(w)), skip+uint32(len(w))
		}
		if skip == s.length {
			l.base += s.length
			l.at++
			skip = 0
		}
	}
	return landed, 0
}
