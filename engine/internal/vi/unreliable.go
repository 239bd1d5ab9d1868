package vi

import (
	"math"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Unreliable is the kind of VIs whose messages are not acknowledged.
type Unreliable struct{ *Transport }

func (k Unreliable) Open(ep *core.Endpoint, peer *datasheet.ConnectBody) {
	u := &unreliable{Liveness: core.Liveness{Heard: k.Now}}
	ep.Conn, ep.Alive = u, &u.Liveness
	if !ep.Kind.Tokens && k.Lossless != nil && peer.Wire != 0 && peer.Wire == k.Wire(ep.Remote.MAC) && ep.Remote.Endpoint <= math.MaxUint16 {
		u.path = k.PathOf(ep)
		u.path.join(k.Transport)
		u.path.u = u
	}
}

// Hear notes that the peer lives.
func (k Unreliable) Hear(ep *core.Endpoint) { unrel(ep).Hear(&k.Clock) }

func (Unreliable) Close(ep *core.Endpoint) {
	if u := unrel(ep); u != nil && u.path != nil {
		u.path.u = nil
	}
}

func (Unreliable) Outstanding(*core.Endpoint) (uint32, bool) { return 0, false }
func (Unreliable) Posted(*core.Endpoint)                     {}

// Transmit implements core.Delivery, for raw frames too.
func (k Unreliable) Transmit(ep *core.Endpoint, budget int) bool {
	u, q := unrel(ep), &ep.Send
	m := &u.out
	for range budget {
		if u.path != nil && u.path.sendLoose() {
			continue
		}
		if !m.Begun {
			if q.Posted() == 0 {
				return false
			}
			k.begin(ep, m, u.nextSend)
			if m.Status != 0 {
				m.Begun = false
				ep.Kind.Format.Complete(ep, q, &m.Layout, 0, 0, m.Status)
				continue
			}
			u.nextSend++
		}
		var o core.Outcome
		if ep.Connects {
			o = k.Tx.SendData(ep, m, 0, m.Cut, 0, false)
		} else {
			o = k.sendRaw(ep, m)
		}
		if o == core.FrameWaiting {
			return true
		}
	}
	return m.Begun || q.Posted() > 0
}

func (k Unreliable) Sent(ep *core.Endpoint, m *core.Sending, _, _, n, _ uint32, _ bool) {
	if m.Cut += n; m.Cut == m.Total {
		m.Begun = false
		k.Count(datasheet.CounterMessagesSent, 1)
		ep.Kind.Format.Complete(ep, &ep.Send, &m.Layout, m.Total, 0, 0)
	}
}

func (k Unreliable) Failed(ep *core.Endpoint, m *core.Sending, _ bool, st datasheet.Status) {
	m.Begun = false
	ep.Kind.Format.Complete(ep, &ep.Send, &m.Layout, 0, 0, st)
}

// Take implements core.Delivery. Messages are taken whole, in order of their frames and of their
// numbers, or not at all.
func (k Unreliable) Take(ep *core.Endpoint, h *datasheet.Header, _ []byte) core.Verdict {
	u := unrel(ep)
	u.Hear(&k.Clock)
	switch h.Type {
	case datasheet.FrameData:
	case datasheet.FrameProbe:
		k.Tx.SendAck(ep, datasheet.FrameAck) // if there is no room the peer asks again
		return core.Taken
	case datasheet.FrameAck:
		return core.Taken
	case datasheet.FrameWrite:
		if ep.Rights&datasheet.AccessRDMAWrite == 0 || k.Rx.Extension.Request != 0 {
			return core.Refused
		}
	default:
		return core.Refused
	}
	in := &u.in
	switch {
	case h.Length == 0 && h.Extent != 0, uint64(h.Offset)+uint64(h.Length) > uint64(h.Extent), h.Extent < ep.Shortest:
		return core.Refused
	case h.Flags&datasheet.FrameFirst != 0:
		if h.Offset != 0 || h.Extent > ep.MaxTransfer || int32(h.Message-u.next) < 0 {
			return core.Refused
		}
		u.next, in.Open = h.Message+1, false
		in.Extent, in.Received, in.Immediate, in.Flags = h.Extent, 0, 0, 0
		in.Written = h.Type == datasheet.FrameWrite
		if in.Written && h.Flags&datasheet.FrameImmediate == 0 {
			in.Open, in.Status = true, 0
			break
		}
		if !u.receive {
			if !k.takeReceive(ep, in) {
				k.Count(datasheet.CounterReceiveQueueEmpty, 1)
				if ep.KindID == datasheet.KindVI { // others may lose too many for an event each
					k.Event(datasheet.Event{Code: datasheet.EventReceiveQueueEmpty, Endpoint: ep.ID, CQ: datasheet.NoCQ})
				}
				return core.Taken
			}
			u.receive, u.fetched = true, in.Status
		}
		if in.Open = true; in.Written {
			in.Status = u.fetched
			break
		}
		in.Status = ep.Kind.Format.Destination(ep, in, u.fetched, h.Extent, h.Immediate, h.Flags&datasheet.FrameImmediate != 0)
	case !in.Open || h.Message != u.next-1 || h.Extent != in.Extent || h.Offset < in.Received || in.Written != (h.Type == datasheet.FrameWrite):
		// It is of another message, or a copy of what has come.
		return core.Refused
	case h.Offset > in.Received:
		// A frame is missing: the rest of the message is lost, its descriptor waits
		// for the next one.
		in.Open = false
		return core.Refused
	}
	if in.Written {
		k.aimWrite(ep, h, in)
	} else {
		k.Rx.Aim(ep, in, in.Status)
	}
	return core.Placing
}

// Placed implements core.Delivery: the message is complete if it is whole.
func (k Unreliable) Placed(ep *core.Endpoint, h *datasheet.Header) {
	u := unrel(ep)
	in := &u.in
	in.Take(h, k.Rx.Status)
	if in.Written {
		in.Flags |= datasheet.StatusOpRDMAWrite
		if in.Flags&datasheet.StatusImmediate == 0 {
			k.placedWrite(ep, h, in)
			return
		}
	}
	if in.Status == 0 && in.Received != in.Extent {
		return
	}
	u.receive, in.Open = false, false
	length := in.Received
	if in.Status != 0 {
		length = 0
	} else {
		k.Count(datasheet.CounterMessagesReceived, 1)
	}
	ep.Kind.Format.Complete(ep, &ep.Recv, &in.Layout, length, in.Immediate, in.Status|in.Flags)
}

func (k Unreliable) Flush(ep *core.Endpoint, first datasheet.Status) {
	if u := unrel(ep); u != nil && u.out.Begun {
		k.Failed(ep, &u.out, false, first)
	}
}

// A connection whose messages may be lost has a path, too, if its queues have no tokens: the wire loses nothing, but a message
// without a receive is dropped. PSN of its short frames is the number of the message.

// sendLoose sends the next message that is posted, if it is in one or two pieces of memory and fits a frame. Otherwise
// it returns false, and nothing has happened.
func (p *Path) sendLoose() bool {
	u, q, k := p.u, &p.Ep.Send, p.k
	m := &u.out
	if q.Posted() == 0 || m.Begun || !k.Plain || k.Tx.Held || k.Events&core.Suspended != 0 {
		return false
	}
	k.begin(p.Ep, m, u.nextSend)
	if p.put(p.peer|uint64(uint16(u.nextSend))<<16, m) {
		u.nextSend++
		(Unreliable{k}).Sent(p.Ep, m, 0, 0, m.Total, 0, false)
		return true
	}
	q.Fetched-- // it counts as posted
	m.Begun = false
	return false
}
