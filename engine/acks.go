package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// A peer hears of the frames of a message that goes on once ackFrames have come, or ackDelay after
// the first of them: long before it has sent a window of them, or asks.
const (
	ackFrames = windowFrames / 4
	ackDelay  = 64 * time.Microsecond
)

// acknowledge notes that the peer is to get an acknowledgement: at once, or after the
// host had a chance to send something that carries it.
func (r *reliable) acknowledge(now bool) {
	if !r.ackDue {
		r.ackDue, r.ackStep, r.ackNow = true, r.nic.step, false
	}
	r.ackNow = r.ackNow || now
	if r.window != nil {
		r.ackAfter = 0
	}
	r.nic.acks.add(r.ep)
}

// acknowledgeData does the same for a frame that was ahead of the one expected, or in its place.
// Behind one that does not end its message others follow, and one acknowledgement tells of
// several: where a frame takes a call of the kernel, an answer to each costs as much as the data.
func (r *reliable) acknowledgeData(h *datasheet.Header, ahead uint32) {
	after := r.ackAfter
	if !r.ackDue {
		after = r.nic.now + ackDelay
	}
	if r.acknowledge(ahead > 0 || h.Flags&datasheet.FrameAckRequest != 0); h.Flags&datasheet.FrameLast == 0 {
		r.ackAfter = after
	}
}

// holdsAck reports whether the acknowledgement that is due waits for more frames.
func (r *reliable) holdsAck() bool {
	return r.ackStep == r.nic.step || r.window != nil && r.nic.now < r.ackAfter && r.expect-r.told < ackFrames
}
