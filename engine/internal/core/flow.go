package core

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// A peer hears of the frames of a message that goes on once ackFrames have come, or ackDelay after
// the first of them: long before it has sent a window of them, or asks.
const (
	ackFrames = WindowFrames / 4
	ackDelay  = 64 * time.Microsecond
)

// Flow has the numbers that the headers of an acknowledged connection's frames carry, both ways.
type Flow struct {
	C  *Core
	Ep *Endpoint

	// Sending.
	Una, Nxt uint32 // oldest PSN not acknowledged, next PSN
	Lent     uint32 // PSN behind the last frame whose payload was lent
	Wire     uint32 // number of the wire that loses nothing; zero if it may lose some

	// Receiving.
	Expect   uint32 // next PSN
	Have     uint64 // bit i stands for PSN expect+1+i, which has arrived
	Receives uint32 // messages that can be in work
	Done     uint32 // number of the oldest message that is not complete
	Offered  uint32 // credit that the peer was told last
	Told     uint32 // Ack as the peer was told last
	Twice    uint32 // data frames that have come once more
	Came     uint32 // data frames that have come, whatever became of them
	Refused  uint32 // PSN of the peer's frame that was not allowed what it wanted

	ackDue   bool          // the peer is to get an acknowledgement
	ackNow   bool          // at once
	ackStep  uint64        // step in which it became due
	ackAfter time.Duration // until when it may wait for more frames
}

// Credit is the first message number for which the endpoint has no receive.
//
// One that shares a receive queue has none until a message comes: it gives credit for as
// many as can be in work.
func (r *Flow) Credit() uint32 {
	if r.Ep.Recv.Source != nil {
		return r.Done + r.Receives
	}
	return r.Done + (r.Ep.Recv.Producer - r.Ep.Recv.Completed)
}

// Tell notes what a frame to the peer says.
func (r *Flow) Tell(credit uint32) {
	r.ackDue, r.Offered, r.Told = false, credit, r.Expect
}

// Lending reports whether the peer may still have to read what a connection has
// lent it.
func (r *Flow) Lending() bool { return r != nil && int32(r.Lent-r.Una) > 0 }

// Acknowledge notes that the peer is to get an acknowledgement: at once, or after the
// host had a chance to send something that carries it.
func (r *Flow) Acknowledge(now bool) {
	if !r.ackDue {
		r.ackDue, r.ackStep, r.ackNow = true, r.C.Step, false
	}
	r.ackNow = r.ackNow || now
	r.ackAfter = 0
	r.C.acks.Add(r.Ep)
}

// AcknowledgeData does the same for a frame that was ahead of the one expected, or in its place.
// Behind one that does not end its message others follow, and one acknowledgement tells of
// several: where a frame takes a call of the kernel, an answer to each costs as much as the data.
func (r *Flow) AcknowledgeData(h *datasheet.Header, ahead uint32) {
	after := r.ackAfter
	if !r.ackDue {
		after = r.C.Now + ackDelay
	}
	if r.Acknowledge(ahead > 0 || h.Flags&datasheet.FrameAckRequest != 0); h.Flags&datasheet.FrameLast == 0 {
		r.ackAfter = after
	}
}

// holdsAck reports whether the acknowledgement that is due waits for more frames.
func (r *Flow) holdsAck() bool {
	return r.ackStep == r.C.Step || r.C.Now < r.ackAfter && r.Expect-r.Told < ackFrames
}
