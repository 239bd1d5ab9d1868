package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// receipt is a message on its way in.
type receipt struct {
	layout
	extent    uint32 // length that the sender states
	received  uint32
	immediate uint32
	flags     descriptors.Status // StatusImmediate if there is any
	open      bool               // a frame of it has arrived
	written   bool               // it is an RDMA write
	// tabled says that the payload goes where entry says, not where the descriptor
	// says.
	tabled bool
	last   uint32 // PSN of its last frame
	entry  layout // of that entry, or of the memory that an RDMA write names
}

// take notes that a frame's payload has been placed, or that this failed.
func (in *receipt) take(h *descriptors.Header, st descriptors.Status) {
	in.open, in.extent, in.status = true, h.Extent, st
	in.received += uint32(h.Length)
	if h.Offset+uint32(h.Length) == h.Extent {
		in.last = h.PSN
	}
	if h.Flags&descriptors.FrameImmediate != 0 {
		in.immediate, in.flags = h.Immediate, descriptors.StatusImmediate
	}
}

// takeReceive fetches the next receive descriptor into in, unless none is
// posted. A bad one shows in in.status.
func (r *receiver) takeReceive(ep *endpoint, in *receipt) bool {
	q := &ep.recv
	if q.posted() == 0 {
		// The host may have rung since this round looked: what it had posted
		// before the message was sent must be there for it.
		if r.bells.takePage(ep.id); q.posted() == 0 && !r.share(q) {
			return false
		}
	}
	if ep.plain {
		r.regions.fetch(ep, q, &in.layout)
	} else {
		ep.kind.fetch(ep, q, &in.layout)
	}
	return true
}

// destination implements kind: a message goes to the memory of its receive descriptor, or where
// an entry of the payload table says, which a program has chosen.
func (k vi) destination(ep *endpoint, in *receipt, st descriptors.Status, h *descriptors.Header) descriptors.Status {
	room, entry := in.total, k.rx.entry
	if in.tabled = entry != nil; in.tabled {
		l := &in.entry
		l.segments = append(l.segments[:0], *entry)
		l.total, l.at, l.base, l.memory, l.peer = entry.length, 0, 0, nil, false
		room = l.total
	}
	switch {
	case st != 0:
		return st
	case h.Extent > room:
		return descriptors.StatusLengthError
	case in.tabled:
		return k.regions.check(&in.entry, ep.ptag, true)
	}
	return 0
}
