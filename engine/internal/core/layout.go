package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// Layout is the descriptor of one message and its local memory: the segments and where in
// them the last access ended, since most accesses go on from there.
type Layout struct {
	Token    datasheet.Token
	Control  Control
	Status   datasheet.Status // non-zero: the message has failed on this side
	Peer     bool             // the peer has named the memory
	Discards bool             // the payload of a ring's message, or its rest, goes nowhere
	Segments []Segment
	Total    uint32
	Place    uint32 // where the payload of a ring's message goes: RingSlot.Place
	Eager    parts
	Front    uint32 // of a receive: bytes from the front of the message that have landed
	At       int    // segment of the last access
	Base     uint32 // message offset at which that segment starts

	// What was found when the descriptor was fetched, good as long as stamp is that of
	// the regions: the descriptor, and the memory of the message if it is in one piece.
	Stamp      uint64
	Descriptor *datasheet.ControlSegment
	Memory     []byte
	Pieces     [2][]byte // the same in two pieces: the message of a ring, and its payload
	// Of an eager region, whose memory stands in memory: what the host has pushed of it, and
	// the offset there of the first byte of the message. And the same of the descriptor.
	Pushed      *eager
	PushedAt    uint64
	Described   *eager
	describedAt uint64
}

// InOnePiece reports whether the memory of the message is known and may be used.
func (m *Regions) InOnePiece(l *Layout) bool { return l.Stamp == m.Stamp && l.Memory != nil }

// Check looks at every segment before any byte moves.
func (m *Regions) Check(l *Layout, tag uint32, write bool) datasheet.Status {
	if l.Memory, l.Pushed = nil, nil; l.Stamp != m.Stamp {
		l.Stamp, l.Descriptor, l.Described = m.Stamp, nil, nil
	}
	l.Eager &^= eagerData
	for i := range l.Segments {
		s := &l.Segments[i]
		r, off := m.Reach(s.Handle, tag, s.Address, uint64(s.Length), write)
		if r == nil || l.Peer && !r.grants(write) {
			m.Count(datasheet.CounterProtectionErrors, 1)
			return datasheet.StatusProtectionError
		}
		if r.Eager != nil {
			l.Eager |= eagerData
			if l.Peer {
				continue // what a peer reads is always host memory
			}
			if r.Eager.lands && r.Epoch != m.Epoch {
				r.Epoch, r.Whole = m.Epoch, m.contiguous(r)
			}
		}
		if len(l.Segments) == 1 && r.Epoch == m.Epoch && r.Whole != nil {
			l.Memory, l.Pushed, l.PushedAt = r.Whole[off:off+uint64(s.Length)], r.Eager, off
		}
	}
	return 0
}

// next returns the memory of a message from offset on: n bytes, or as many as are
// contiguous. It checks them again: what check saw may have been deregistered.
func (m *Regions) next(l *Layout, offset uint32, n int, tag uint32, write bool) ([]byte, datasheet.Status) {
	if offset < l.Base {
		l.At, l.Base = 0, 0
	}
	for l.At < len(l.Segments) && offset-l.Base >= l.Segments[l.At].Length {
		l.Base += l.Segments[l.At].Length
		l.At++
	}
	if l.At >= len(l.Segments) {
		return nil, datasheet.StatusLengthError
	}
	s, skip := &l.Segments[l.At], uint64(offset-l.Base)
	at, size := s.Address+skip, min(uint64(s.Length)-skip, uint64(n))
	if l.Peer && m.Check(l, tag, write) != 0 {
		return nil, datasheet.StatusProtectionError
	}
	var w []byte
	if !l.Peer || write {
		w = m.At(s.Handle, tag, at, size, write)
	} else if r, off := m.Reach(s.Handle, tag, at, size, false); r != nil {
		// What a peer reads is always host memory: the host does not know when, and pushes nothing for it.
		w = m.Window(r, off, size, false)
	}
	if len(w) == 0 {
		return nil, datasheet.StatusProtectionError
	}
	return w, 0
}

// Gather copies len(dst) bytes of a message from host memory, from offset on.
func (m *Regions) Gather(dst []byte, l *Layout, offset uint32, tag uint32) datasheet.Status {
	if m.InOnePiece(l) {
		if l.Pushed == nil {
			copy(dst, l.Memory[offset:])
		} else {
			m.gatherEager(dst, l, offset)
		}
		return 0
	}
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

// Scatter copies src into a message's host memory, from offset on. landed says
// whether any byte of it was written.
func (m *Regions) Scatter(src []byte, l *Layout, offset uint32, tag uint32) (landed bool, st datasheet.Status) {
	if m.InOnePiece(l) {
		switch {
		case l.Pushed == nil:
		case l.Pushed.lands:
			return m.land(src, l, offset), 0
		default:
			l.Pushed.Void(l.PushedAt+uint64(offset), uint64(min(len(src), len(l.Memory)-int(offset))))
		}
		return copy(l.Memory[offset:], src) > 0, 0
	}
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

// Control is the part that we keep of a control segment.
type Control struct {
	Bits      datasheet.Control
	Immediate uint32
}

// Receipt is a message on its way in.
type Receipt struct {
	Layout
	Extent    uint32 // length that the sender states
	Received  uint32
	Immediate uint32
	Flags     datasheet.Status // StatusImmediate if there is any
	Open      bool             // a frame of it has arrived
	Written   bool             // it is an RDMA write
	// Tabled says that the payload goes where entry says, not where the descriptor
	// says.
	Tabled bool
	Last   uint32 // PSN of its last frame
	Entry  Layout // of that entry, or of the memory that an RDMA write names
}

// Take notes that a frame's payload has been placed, or that this failed.
func (in *Receipt) Take(h *datasheet.Header, st datasheet.Status) {
	in.Open, in.Extent, in.Status = true, h.Extent, st
	in.Received += uint32(h.Length)
	if h.Offset+uint32(h.Length) == h.Extent {
		in.Last = h.PSN
	}
	if h.Flags&datasheet.FrameImmediate != 0 {
		in.Immediate, in.Flags = h.Immediate, datasheet.StatusImmediate
	}
}

// Withdraw has no more of a message's payload go where the payload table of a ring said. It
// returns false if it did not go there.
func (in *Receipt) Withdraw() bool {
	if in.Place == 0 {
		return false
	}
	in.Discard()
	return true
}

// Discard has the payload of a ring's message, or what is still to come of it, go nowhere.
func (in *Receipt) Discard() {
	in.Place, in.Discards = 0, true
	if in.Tabled {
		in.Entry.Segments = in.Entry.Segments[:1]
		in.Entry.Total, in.Entry.At, in.Entry.Base = datasheet.RingMessage, 0, 0
	}
}
