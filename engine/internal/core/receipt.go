package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

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
