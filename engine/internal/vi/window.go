package vi

import (
	"time"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// window is the state for sending again what a wire has lost: selective repeat within
// windowFrames frames (SPEC.md 8.4). Bit i of acked, resend and resent stands for PSN
// una+i.
type window struct {
	acked  uint64 // arrived out of order at the peer
	resend uint64 // to be sent again
	resent uint64 // sent again, so of no use to measure the round trip
	frames [core.WindowFrames]cut

	passed place                    // of frame expect-1
	places [core.WindowFrames]place // of those that have arrived out of order, by PSN

	// These find out whether data frames fail to arrive on a connection on which small
	// frames do (SPEC.md 8.5, Path).
	asking       bool   // a small question is unanswered
	counted      uint32 // data frames that had come, as the peer said last
	emptyAnswers int    // answers in a row that no data frame has come

	// These are the timers. Times are the engine's clock.
	rto, srtt, rttvar time.Duration
	retransmitAt      time.Duration // zero: not running
	probeAt           time.Duration // zero: not running
	probeGap          time.Duration // between probes for credit that are answered
	timeoutAt         time.Duration // when all frames are sent again, while retransmitAt is running
	backOff           time.Duration // until the next question, once there have been maxProbes
	probes            int           // that have not been answered
	asked             bool          // for credit, and none has come

	// These are a sender's knowledge of how its frames get lost, and overtake each
	// other: RACK-TLP (RFC 8985) with frames in place of segments, SPEC.md 8.4.
	duplicates uint32 // frames that the peer has had twice, as it says
	// Transmissions are numbered, the first of a frame and its repetitions alike: the
	// clock is too coarse to tell which of two was first.
	transmissions uint64
	newest        uint64        // of those of which it mattered that they have arrived
	newestRTT     time.Duration // its round trip
	minRTT        time.Duration // the shortest one since frames have been lost; zero: none
	suspectAt     time.Duration // when the next suspect counts as lost; zero: none does
	reordered     bool          // a frame has overtaken another one on this wire
	doubted       bool          // frames have been taken for lost since the last evidence
	widened       uint8         // by how many steps the reordering window is wider
	widenedFor    uint8         // so many recoveries to come
	round         uint32        // evidence counts from when this PSN is the oldest
}

// cut is a frame of a message that has been sent.
type cut struct {
	m      *core.Sending
	offset uint32
	sentAt time.Duration
	number uint64 // of the transmission
}

// place is the part of a message that the payload of a data frame fills: from begin to end, in
// bytes.
type place struct {
	message, begin, end uint32
}

// placeOf returns the frame's place in its message. A frame without data has an empty place, at
// the beginning of the next message.
func placeOf(h *datasheet.Header) place {
	if h.Type != datasheet.FrameData && h.Flags&datasheet.FrameImmediate == 0 {
		return place{h.Message, 0, 0}
	}
	return place{h.Message, h.Offset, h.Offset + uint32(h.Length)}
}

// ends reports whether p lies before q.
func (p place) ends(q place) bool {
	return int32(q.message-p.message) > 0 || p.message == q.message && p.end <= q.begin
}
