package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// receipt is a message on its way in.
type receipt struct {
	layout
	extent    uint32 // length that the sender states
	received  uint32
	immediate uint32
	flags     datasheet.Status // StatusImmediate if there is any
	open      bool             // a frame of it has arrived
	written   bool             // it is an RDMA write
	// tabled says that the payload goes where entry says, not where the descriptor
	// says.
	tabled bool
	last   uint32 // PSN of its last frame
	entry  layout // of that entry, or of the memory that an RDMA write names
}

// take notes that a frame's payload has been placed, or that this failed.
func (in *receipt) take(h *datasheet.Header, st datasheet.Status) {
	in.open, in.extent, in.status = true, h.Extent, st
	in.received += uint32(h.Length)
	if h.Offset+uint32(h.Length) == h.Extent {
		in.last = h.PSN
	}
	if h.Flags&datasheet.FrameImmediate != 0 {
		in.immediate, in.flags = h.Immediate, datasheet.StatusImmediate
	}
}

// withdraw has no more of a message's payload go where the payload table of a ring said. It
// returns false if it did not go there.
func (in *receipt) withdraw() bool {
	if in.place == 0 {
		return false
	}
	in.discard()
	return true
}

// discard has the payload of a ring's message, or what is still to come of it, go nowhere.
func (in *receipt) discard() {
	in.place, in.discards = 0, true
	if in.tabled {
		in.entry.segments = in.entry.segments[:1]
		in.entry.total, in.entry.at, in.entry.base = datasheet.RingMessage, 0, 0
	}
}
