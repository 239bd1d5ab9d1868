package engine

import (
	"math/bits"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// take implements kind, in whatever order frames come. Until a data frame is placed
// nothing says that it has come, so it may still be dropped.
func (k reliableVI) take(ep *endpoint, h *datasheet.Header, _ []byte) verdict {
	r := rel(ep)
	if v := r.takeControl(h); v != placing {
		return v
	}
	r.came++
	ahead := h.PSN - r.expect
	if int32(ahead) < 0 || ahead > 0 && ahead < windowFrames && r.have&(1<<(ahead-1)) != 0 {
		// Our acknowledgement has been lost.
		k.count(datasheet.CounterFramesDuplicate, 1)
		r.twice++
		r.acknowledge(true)
		return taken
	}
	if ahead >= windowFrames {
		r.acknowledge(true)
		return refused
	}
	switch {
	case !r.inPlace(h, ahead):
		return refused
	case h.Type != datasheet.FrameData:
		return r.takeRDMA(h, ahead)
	case !r.findReceipt(h):
		return refused
	}
	return placing
}

// takeControl takes what a frame says besides data: that the peer lives, and what it has
// got. It answers placing for a frame that is more than that.
func (r *reliable) takeControl(h *datasheet.Header) verdict {
	r.hear(&r.nic.clock)
	switch t := h.Type; {
	case t-datasheet.FrameData > datasheet.FrameProbe-datasheet.FrameData && !t.RDMA(), !r.takeAck(h):
		return refused
	case t == datasheet.FrameProbe:
		r.acknowledge(true)
		return taken
	case t == datasheet.FrameAck:
		return taken
	}
	return placing
}

// placed implements kind: the messages that are whole are completed, in order.
func (k reliableVI) placed(ep *endpoint, h *datasheet.Header) {
	r := rel(ep)
	ahead := h.PSN - r.expect
	if h.Type != datasheet.FrameData {
		r.placedRDMA(h, ahead)
		return
	}
	k.rx.receipt.take(h, k.rx.status)
	r.mark(h, ahead)
	r.finishReceipts()
	if rel(ep) != nil {
		r.acknowledgeData(h, ahead)
	}
}

// mark notes that a frame has arrived, ahead of the one expected next.
func (r *reliable) mark(h *datasheet.Header, ahead uint32) {
	if r.window == nil {
		r.expect++
	} else if ahead > 0 {
		r.have |= 1 << (ahead - 1)
		r.places[h.PSN%windowFrames] = placeOf(h)
	} else {
		r.passed = placeOf(h)
		for more := true; more; r.have >>= 1 {
			r.expect++
			if more = r.have&1 != 0; more {
				r.passed = r.places[r.expect%windowFrames]
			}
		}
	}
}

// findReceipt finds the message that a frame belongs to, and fetches its receive
// descriptor if it is the message's first frame to arrive. It returns false if
// the frame contradicts what is known.
func (r *reliable) findReceipt(h *datasheet.Header) bool {
	ep, rx := r.ep, &r.nic.rx
	if !fits(ep, h) {
		return false
	}
	ahead := h.Message - r.done
	if ahead >= uint32(len(r.receipts)) || !r.hasReceive(h, ahead) {
		return false
	}
	r.takeReceives(ahead + 1)
	in := r.receipt(h.Message)
	if !in.open && in.status == 0 && in.stamp != rx.regions.stamp {
		// It was fetched ahead, and memory has been taken away since then.
		in.status = rx.regions.check(&in.layout, ep.ptag, true)
	}
	if write := h.Type == datasheet.FrameWrite; in.open && (in.written != write || in.extent != h.Extent || in.received == in.extent) {
		return false
	} else if in.written = write; write {
		r.nic.aimWrite(ep, h, in)
		return true
	}
	st := in.status
	if !in.open {
		st = r.nic.destination(ep, in, st, h)
	}
	rx.aim(ep, in, st)
	return true
}

// takeReceives fetches receive descriptors until n are in work. They are taken in
// the order of messages, whatever comes first.
func (r *reliable) takeReceives(n uint32) {
	q := &r.ep.recv
	for int32(q.completed+n-q.fetched) > 0 {
		next := r.receipt(r.done + q.fetched - q.completed)
		next.open, next.received, next.flags, next.immediate = false, 0, 0, 0
		r.nic.takeReceive(r.ep, next)
	}
}

// fetchAhead fetches the descriptors of receives that were posted: the messages for them
// then need not wait for that.
func (r *reliable) fetchAhead() {
	q := &r.ep.recv
	r.takeReceives(min(q.producer-q.completed, uint32(len(r.receipts))))
}

// finishReceipts completes the messages that have arrived whole, in order. A
// receive that failed breaks the connection.
func (r *reliable) finishReceipts() {
	e, ep := r.nic, r.ep
	for int32(ep.recv.fetched-ep.recv.completed) > 0 {
		in := r.receipt(r.done)
		if !in.open {
			return
		}
		if in.status != 0 {
			reason := datasheet.ResultRemoteDescriptor
			if in.status&datasheet.StatusRDMAProtection != 0 {
				reason = datasheet.ResultRDMAProtection
			}
			// The peer is told before done moves on, so that it can tell which
			// of its messages failed.
			e.conns.end(ep, reason, true)
			e.complete(ep, &ep.recv, &in.layout, 0, 0, in.status|in.flags&datasheet.StatusOpMask)
			e.conns.enterError(ep, datasheet.StatusTransportError)
			e.event(datasheet.Event{Code: datasheet.EventConnectionLost, Endpoint: ep.id, CQ: datasheet.NoCQ,
				Detail: uint32(reason), Descriptor: in.token.Address})
			return
		}
		if in.received != in.extent || int32(r.expect-in.last) <= 0 {
			return // or something is missing that was sent before its last frame
		}
		in.open, e.handed = false, true
		r.done++
		if r.wants {
			r.answerCredit()
		}
		e.count(datasheet.CounterMessagesReceived, 1)
		e.complete(ep, &ep.recv, &in.layout, in.received, in.immediate, in.flags)
	}
}

// posted implements kind: it tells the peer about newly posted receives once they at
// least double what it has left: often enough that it never waits long, seldom
// enough that the news costs little.
func (k reliableVI) posted(ep *endpoint) {
	r := rel(ep)
	if r == nil {
		return
	}
	r.doubles(r.offered)
	r.fetchAhead()
}

// doubles acknowledges, and reports it, if the receives posted at least double what the peer
// has left of credit.
func (r *reliable) doubles(credit uint32) bool {
	gain, left := r.credit()-credit, credit-r.done
	if int32(gain) <= 0 || gain < left {
		return false
	}
	r.acknowledge(false)
	return true
}

// giveCredit has the peer find its credit. A peer that waits for more is told, as is one that
// cannot look.
func (r *reliable) giveCredit() {
	asked, asks, ok := r.way.GiveCredit(r.ep.id, r.ep.remote.ourKey, r.credit())
	if !ok {
		r.doubles(r.offered)
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
	if b := r.have << 1 & (1<<ahead - 1); b != 0 {
		before = r.places[(r.expect-1+uint32(bits.Len64(b)))%windowFrames]
	}
	if !before.ends(at) {
		return false
	}
	behind := r.have >> ahead
	return behind == 0 || at.ends(r.places[(h.PSN+1+uint32(bits.TrailingZeros64(behind)))%windowFrames])
}
