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

// flow is what the headers of an acknowledged connection's frames say of it, in both directions.
type flow struct {
	c  *core
	ep *endpoint

	// Sending.
	una, nxt uint32 // oldest PSN not acknowledged, next PSN
	lent     uint32 // PSN behind the last frame whose payload was lent
	wire     uint32 // number of the wire that loses nothing; zero if it may lose some

	// Receiving.
	expect   uint32 // next PSN
	have     uint64 // bit i stands for PSN expect+1+i, which has arrived
	receives uint32 // messages that can be in work
	done     uint32 // number of the oldest message that is not complete
	offered  uint32 // credit that the peer was told last
	told     uint32 // Ack as the peer was told last
	twice    uint32 // data frames that have come once more
	came     uint32 // data frames that have come, whatever became of them
	refused  uint32 // PSN of the peer's frame that was not allowed what it wanted

	ackDue   bool          // the peer is to get an acknowledgement
	ackNow   bool          // at once
	ackStep  uint64        // step in which it became due
	ackAfter time.Duration // until when it may wait for more frames
}

// credit is the first message number for which the endpoint has no receive.
//
// One that shares a receive queue has none until a message comes: it gives credit for as
// many as can be in work.
func (r *flow) credit() uint32 {
	if r.ep.recv.source != nil {
		return r.done + r.receives
	}
	return r.done + (r.ep.recv.producer - r.ep.recv.completed)
}

// tell notes what a frame to the peer says.
func (r *flow) tell(credit uint32) {
	r.ackDue, r.offered, r.told = false, credit, r.expect
}

// lending reports whether the peer may still have to read what a connection has
// lent it.
func (r *flow) lending() bool { return r != nil && int32(r.lent-r.una) > 0 }

// acknowledge notes that the peer is to get an acknowledgement: at once, or after the
// host had a chance to send something that carries it.
func (r *flow) acknowledge(now bool) {
	if !r.ackDue {
		r.ackDue, r.ackStep, r.ackNow = true, r.c.step, false
	}
	r.ackNow = r.ackNow || now
	r.ackAfter = 0
	r.c.acks.add(r.ep)
}

// acknowledgeData does the same for a frame that was ahead of the one expected, or in its place.
// Behind one that does not end its message others follow, and one acknowledgement tells of
// several: where a frame takes a call of the kernel, an answer to each costs as much as the data.
func (r *flow) acknowledgeData(h *datasheet.Header, ahead uint32) {
	after := r.ackAfter
	if !r.ackDue {
		after = r.c.now + ackDelay
	}
	if r.acknowledge(ahead > 0 || h.Flags&datasheet.FrameAckRequest != 0); h.Flags&datasheet.FrameLast == 0 {
		r.ackAfter = after
	}
}

// holdsAck reports whether the acknowledgement that is due waits for more frames.
func (r *flow) holdsAck() bool {
	return r.ackStep == r.c.step || r.c.now < r.ackAfter && r.expect-r.told < ackFrames
}

// sendAcks sends the acknowledgements that are due, and what the peers of connections
// that have ended are still to be told. It reports whether any went out.
func (c *connections) sendAcks() bool {
	any := false
	c.acks.keep(func(ep *endpoint) (due bool) {
		switch r := ep.flow; {
		case r == nil && ep.ended.due:
			due = !c.sendDisconnect(&ep.ended)
			ep.ended.due = due
		case r == nil || !r.ackDue && r.have == 0:
			// A data frame has taken the acknowledgement along, and nothing has
			// arrived out of order that it could not tell.
			return false
		case !r.ackNow && r.holdsAck():
			return true
		default:
			due = !c.tx.sendAck(ep, datasheet.FrameAck)
		}
		any = any || !due
		return due
	})
	return any
}
