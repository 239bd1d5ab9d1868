package vi

import (
	"math/bits"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Take implements core.Delivery, in whatever order frames come. Until a data frame is placed
// nothing says that it has come, so it may still be dropped.
func (k Reliable) Take(ep *core.Endpoint, h *datasheet.Header, _ []byte) core.Verdict {
	r := rel(ep)
	if v := r.takeControl(h); v != core.Placing {
		return v
	}
	r.Came++
	ahead := h.PSN - r.Expect
	if int32(ahead) < 0 || ahead > 0 && ahead < core.WindowFrames && r.Have&(1<<(ahead-1)) != 0 {
		// Our acknowledgement has been lost.
		k.Count(datasheet.CounterFramesDuplicate, 1)
		r.Twice++
		r.Acknowledge(true)
		return core.Taken
	}
	if ahead >= core.WindowFrames {
		r.Acknowledge(true)
		return core.Refused
	}
	switch {
	case !r.inPlace(h, ahead):
		return core.Refused
	case h.Type != datasheet.FrameData:
		return r.takeRDMA(h, ahead)
	case !r.findReceipt(h):
		return core.Refused
	}
	return core.Placing
}

// takeControl takes what a frame says besides data: that the peer lives, and what it has
// got. It answers placing for a frame that is more than that.
func (r *reliable) takeControl(h *datasheet.Header) core.Verdict {
	r.Hear(&r.nic.Clock)
	switch t := h.Type; {
	case t-datasheet.FrameData > datasheet.FrameProbe-datasheet.FrameData && !t.RDMA(), !r.takeAck(h):
		return core.Refused
	case t == datasheet.FrameProbe:
		r.Acknowledge(true)
		return core.Taken
	case t == datasheet.FrameAck:
		return core.Taken
	}
	return core.Placing
}

// Placed implements core.Delivery: the messages that are whole are completed, in order.
func (k Reliable) Placed(ep *core.Endpoint, h *datasheet.Header) {
	r := rel(ep)
	ahead := h.PSN - r.Expect
	if h.Type != datasheet.FrameData {
		r.placedRDMA(h, ahead)
		return
	}
	k.Rx.Receipt.Take(h, k.Rx.Status)
	r.mark(h, ahead)
	r.finishReceipts()
	if rel(ep) != nil {
		r.AcknowledgeData(h, ahead)
	}
}

// mark notes that a frame has arrived, ahead of the one expected next.
func (r *reliable) mark(h *datasheet.Header, ahead uint32) {
	if r.window == nil {
		r.Expect++
	} else if ahead > 0 {
		r.Have |= 1 << (ahead - 1)
		r.places[h.PSN%core.WindowFrames] = placeOf(h)
	} else {
		r.passed = placeOf(h)
		for more := true; more; r.Have >>= 1 {
			r.Expect++
			if more = r.Have&1 != 0; more {
				r.passed = r.places[r.Expect%core.WindowFrames]
			}
		}
	}
}

// findReceipt finds the message that a frame belongs to, and fetches its receive
// descriptor if it is the message's first frame to arrive. It returns false if
// the frame contradicts what is known.
func (r *reliable) findReceipt(h *datasheet.Header) bool {
	ep, rx := r.Ep, &r.nic.Rx
	if !fits(ep, h) {
		return false
	}
	ahead := h.Message - r.Done
	if ahead >= uint32(len(r.receipts)) || !r.hasReceive(h, ahead) {
		return false
	}
	r.takeReceives(ahead + 1)
	in := r.receipt(h.Message)
	if !in.Open && in.Status == 0 && in.Stamp != rx.Regions.Stamp {
		// It was fetched for a later message, and memory has been taken away since then.
		in.Status = rx.Regions.Check(&in.Layout, ep.Ptag, true)
	}
	if write := h.Type == datasheet.FrameWrite; in.Open && (in.Written != write || in.Extent != h.Extent || in.Received == in.Extent) {
		return false
	} else if in.Written = write; write {
		r.nic.aimWrite(ep, h, in)
		return true
	}
	st := in.Status
	if !in.Open {
		st = ep.Kind.Format.Destination(ep, in, st, h.Extent, h.Immediate, h.Flags&datasheet.FrameImmediate != 0)
	}
	rx.Aim(ep, in, st)
	return true
}

// takeReceives fetches receive descriptors until n are in work. They are taken in
// the order of messages, whatever comes first.
func (r *reliable) takeReceives(n uint32) {
	q := &r.Ep.Recv
	for int32(q.Completed+n-q.Fetched) > 0 {
		next := r.receipt(r.Done + q.Fetched - q.Completed)
		next.Open, next.Received, next.Flags, next.Immediate = false, 0, 0, 0
		r.nic.takeReceive(r.Ep, next)
	}
}

// finishReceipts completes the messages that have arrived whole, in order. A
// receive that failed breaks the connection.
func (r *reliable) finishReceipts() {
	e, ep := r.nic, r.Ep
	for int32(ep.Recv.Fetched-ep.Recv.Completed) > 0 {
		in := r.receipt(r.Done)
		if !in.Open {
			return
		}
		if in.Status != 0 {
			reason := datasheet.ResultRemoteDescriptor
			if in.Status&datasheet.StatusRDMAProtection != 0 {
				reason = datasheet.ResultRDMAProtection
			}
			// The peer is told before done moves on, so that it can tell which
			// of its messages failed.
			e.Conns.End(ep, reason, true)
			ep.Kind.Format.Complete(ep, &ep.Recv, &in.Layout, 0, 0, in.Status|in.Flags&datasheet.StatusOpMask)
			e.Conns.EnterError(ep, datasheet.StatusTransportError)
			e.Event(datasheet.Event{Code: datasheet.EventConnectionLost, Endpoint: ep.ID, CQ: datasheet.NoCQ,
				Detail: uint32(reason), Descriptor: in.Token.Address})
			return
		}
		if in.Received != in.Extent || int32(r.Expect-in.Last) <= 0 {
			return // or something is missing that was sent before its last frame
		}
		in.Open, e.Delivered = false, true
		r.Done++
		if r.wants {
			r.answerCredit()
		}
		e.Count(datasheet.CounterMessagesReceived, 1)
		ep.Kind.Format.Complete(ep, &ep.Recv, &in.Layout, in.Received, in.Immediate, in.Flags)
	}
}

// Posted implements core.Delivery: it tells the peer about newly posted receives once they at
// least double what it has left: often enough that it never waits long, seldom
// enough that the news costs little.
func (k Reliable) Posted(ep *core.Endpoint) {
	r := rel(ep)
	if r == nil {
		return
	}
	r.doubles(r.Offered)
}

// doubles acknowledges, and reports it, if the receives posted at least double what the peer
// has left of credit.
func (r *reliable) doubles(credit uint32) bool {
	gain, left := r.Credit()-credit, credit-r.Done
	if int32(gain) <= 0 || gain < left {
		return false
	}
	r.Acknowledge(false)
	return true
}

// giveCredit has the peer find its credit. A peer that waits for more is told, as is one that
// cannot look.
func (r *reliable) giveCredit() {
	asked, asks, ok := r.way.GiveCredit(r.Ep.ID, r.Ep.Remote.OurKey, r.Credit())
	if !ok {
		r.doubles(r.Offered)
		return
	}
	if asks && asked != r.wantsAt {
		r.wantsAt, r.wants = asked, true
	}
	if r.wants {
		r.answerCredit()
	}
}

// answerCredit tells a peer that waits for credit once there is as much as it has messages
// under way: so one answer is for many of them.
func (r *reliable) answerCredit() { r.wants = !r.doubles(r.wantsAt) }

// inPlace reports whether a data frame, whose PSN is ahead of the one expected next,
// lies behind the frames before it and before those behind it that have arrived:
// messages are cut into frames in order. So no place of a message is taken twice, and
// a message of which as many bytes have arrived as it is long is whole.
func (r *reliable) inPlace(h *datasheet.Header, ahead uint32) bool {
	at, before := placeOf(h), r.passed
	if b := r.Have << 1 & (1<<ahead - 1); b != 0 {
		before = r.places[(r.Expect-1+uint32(bits.Len64(b)))%core.WindowFrames]
	}
	if !before.ends(at) {
		return false
	}
	behind := r.Have >> ahead
	return behind == 0 || at.ends(r.places[(h.PSN+1+uint32(bits.TrailingZeros64(behind)))%core.WindowFrames])
}
