package engine

import "github.com/trapeze-nic/trapeze/descriptors"

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

// uses reports whether a segment lies in region handle.
func (l *layout) uses(handle uint32) bool {
	for i := range l.segments {
		if l.segments[i].handle == handle {
			return true
		}
	}
	return false
}

// check looks at every segment before any byte moves.
func (m *regions) check(l *layout, tag uint32, write bool) descriptors.Status {
	for i := range l.segments {
		s := &l.segments[i]
		if r, _ := m.reach(s.handle, tag, s.address, uint64(s.length), write); r == nil {
			m.count(descriptors.CounterProtectionErrors, 1)
			return descriptors.StatusProtectionError
		}
	}
	return 0
}

// next returns the memory of a message from offset on: n bytes, or as many as are
// contiguous. It checks them again: what check saw may have been deregistered.
func (m *regions) next(l *layout, offset uint32, n int, tag uint32, write bool) ([]byte, descriptors.Status) {
	if offset < l.base {
		l.at, l.base = 0, 0
	}
	for l.at < len(l.segments) && offset-l.base >= l.segments[l.at].length {
		l.base += l.segments[l.at].length
		l.at++
	}
	if l.at >= len(l.segments) {
		return nil, descriptors.StatusLengthError
	}
	s, skip := &l.segments[l.at], uint64(offset-l.base)
	w := m.at(s.handle, tag, s.address+skip, min(uint64(s.length)-skip, uint64(n)), write)
	if len(w) == 0 {
		return nil, descriptors.StatusProtectionError
	}
	return w, 0
}

// gather copies len(dst) bytes of a message from host memory, from offset on.
func (m *regions) gather(dst []byte, l *layout, offset uint32, tag uint32) descriptors.Status {
	for len(dst) > 0 {
		w, st := m.next(l, offset, len(dst), tag, false)
		if st != 0 {
			return st
		}
		copy(dst, w)
		dst, offset = dst[len(w):], offset+uint32(len(w))
	}
	return 0
}

// scatter copies src into a message's host memory, from offset on. landed says
// whether any byte of it was written.
func (m *regions) scatter(src []byte, l *layout, offset uint32, tag uint32) (landed bool, st descriptors.Status) {
	for len(src) > 0 {
		w, st := m.next(l, offset, len(src), tag, true)
		if st != 0 {
			return landed, st
		}
		copy(w, src)
		landed = true
		src, offset = src[len(w):], offset+uint32(len(w))
	}
	return landed, 0
}
