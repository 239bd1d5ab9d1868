package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// take implements kind, in whatever order frames come. Until a data frame is placed
// nothing says that it has come, so it may still be dropped.
func (reliableVI) take(e *Engine, ep *endpoint, h *descriptors.Header) verdict {
	r := ep.rel
	r.hear(&e.clock)
	switch t := h.Type; {
	case t != descriptors.FrameData && t != descriptors.FrameAck && t != descriptors.FrameProbe, !e.takeAck(ep, h):
		return refused
	case t == descriptors.FrameProbe:
		e.owe(ep, true)
		return taken
	case t == descriptors.FrameAck:
		return taken
	}
	ahead := h.PSN - r.expect
	if int32(ahead) < 0 || ahead > 0 && ahead < windowFrames && r.have&(1<<(ahead-1)) != 0 {
		// The peer has not heard our acknowledgement.
		e.count(descriptors.CounterFramesDuplicate, 1)
		r.twice++
		e.owe(ep, true)
		return taken
	}
	if ahead >= windowFrames {
		e.owe(ep, true)
		return refused
	}
	if !r.inPlace(h, ahead) || !e.findReceipt(ep, h) {
		return refused
	}
	return e.toPlace(ep, h)
}

// placed implements kind: the messages that are whole are completed, in order.
func (reliableVI) placed(e *Engine, ep *endpoint, h *descriptors.Header) {
	r, in := ep.rel, e.in.receipt
	in.open, in.extent, in.status = true, h.Extent, e.in.status
	in.received += uint32(h.Length)
	if h.Flags&descriptors.FrameImmediate != 0 {
		in.immediate, in.flags = h.Immediate, descriptors.StatusImmediate
	}
	ahead := h.PSN - r.expect
	if ahead > 0 {
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
	e.finishReceipts(ep)
	if ep.rel != nil {
		e.owe(ep, ahead > 0 || h.Flags&descriptors.FrameAckRequest != 0)
	}
}

// findReceipt finds the message that a frame belongs to, and fetches its receive
// descriptor if it is the message's first frame to arrive. It returns false if
// the frame contradicts what is known.
func (e *Engine) findReceipt(ep *endpoint, h *descriptors.Header) bool {
	r := ep.rel
	if uint64(h.Offset)+uint64(h.Length) > uint64(h.Extent) || h.Extent > ep.maxTransfer || h.Length == 0 && h.Extent != 0 {
		return false
	}
	ahead := h.Message - r.done
	if ahead >= uint32(len(r.receipts)) || ahead >= ep.recv.producer-ep.recv.completed {
		// Beyond the credit that we gave.
		return false
	}
	e.takeReceives(ep, ahead+1)
	in := r.receipt(h.Message)
	if !in.open && in.status == 0 && in.revoked != e.regions.revoked {
		// It was fetched ahead, and memory has been taken away since then.
		in.status, in.revoked = e.regions.check(&in.layout, ep.ptag, true), e.regions.revoked
	}
	e.in.receipt, e.in.status = in, in.status
	if !in.open {
		e.in.status = e.aim(ep, in, in.status, h.Extent)
		return true
	}
	return in.extent == h.Extent && in.received != in.extent
}

// takeReceives fetches receive descriptors until n are in work. They are taken in
// the order of messages, whatever comes first.
func (e *Engine) takeReceives(ep *endpoint, n uint32) {
	r, q := ep.rel, &ep.recv
	for int32(q.completed+n-q.fetched) > 0 {
		next := r.receipt(r.done + q.fetched - q.completed)
		next.open, next.received, next.flags, next.immediate = false, 0, 0, 0
		e.takeReceive(ep, next)
	}
}

// anticipate fetches the descriptors of receives that were posted, when all else
// has been done: the messages for them then need not wait for that.
func (e *Engine) anticipate() {
	for i, ep := range e.fresh.members {
		e.fresh.members[i], ep.listed = nil, ep.listed&^onFresh
		if r := ep.rel; r != nil {
			e.takeReceives(ep, min(ep.recv.producer-ep.recv.completed, uint32(len(r.receipts))))
		}
	}
	e.fresh.members = e.fresh.members[:0]
}

// finishReceipts completes the messages that have arrived whole, in order. A
// receive that failed breaks the connection.
func (e *Engine) finishReceipts(ep *endpoint) {
	r := ep.rel
	for int32(ep.recv.fetched-ep.recv.completed) > 0 {
		in := r.receipt(r.done)
		if !in.open {
			return
		}
		if in.status != 0 {
			reason := descriptors.ResultRemoteDescriptor
			// The peer is told before done moves on, so that it can tell which
			// of its messages failed.
			e.bury(ep, reason, true)
			e.cqs.complete(ep, &ep.recv, in.token, 0, 0, in.status)
			e.enterError(ep, descriptors.StatusTransportError)
			e.event(descriptors.Event{Code: descriptors.EventConnectionLost, Endpoint: ep.id, CQ: descriptors.NoCQ,
				Detail: uint32(reason), Descriptor: in.token.Address})
			return
		}
		if in.received != in.extent {
			return
		}
		in.open, e.handed = false, true
		r.done++
		e.count(descriptors.CounterMessagesReceived, 1)
		e.cqs.complete(ep, &ep.recv, in.token, in.received, in.immediate, in.flags)
	}
}

// owe notes that the peer is to get an acknowledgement: at once, or after the
// host had a chance to send something that carries it.
func (e *Engine) owe(ep *endpoint, now bool) {
	r := ep.rel
	if !r.owed {
		r.owed, r.owedStep, r.owedNow = true, e.step, false
	}
	r.owedNow = r.owedNow || now
	e.owing.add(ep)
}

// offerCredit tells the peer about newly posted receives once they at least
// double what it has left: often enough that it never waits long, seldom
// enough that the news costs little.
func (e *Engine) offerCredit(ep *endpoint) {
	r := ep.rel
	gain := e.credit(ep) - r.offered
	if left := r.offered - r.done; gain > 0 && gain >= left {
		e.owe(ep, false)
	}
}

// acknowledge sends the acknowledgements that are due, and what connections that
// have ended still owe. It reports whether any went out.
func (e *Engine) acknowledge() bool {
	any := false
	e.owing.keep(func(ep *endpoint) (due bool) {
		switch r := ep.rel; {
		case r == nil && ep.epitaph.due:
			due = !e.sendEpitaph(ep)
			ep.epitaph.due = due
		case r == nil || !r.owed && r.have == 0:
			// A data frame has taken along what is owed, but for what has arrived out
			// of order.
			return false
		case !r.owedNow && r.owedStep == e.step:
			return true
		default:
			due = !e.sendAck(ep, descriptors.FrameAck)
		}
		any = any || !due
		return due
	})
	return any
}

// sendAck sends an acknowledgement or a probe, which on an unreliable connection
// only say that this end lives. It returns false if the wire takes no more now.
func (e *Engine) sendAck(ep *endpoint, t descriptors.FrameType) bool {
	buf := e.reserve(0)
	if buf == nil {
		return false
	}
	h := descriptors.HeaderAt(buf)
	*h = ep.outline
	h.Type = t
	r := ep.rel
	if r == nil {
		e.launch(buf)
		return true
	}
	credit := e.credit(ep)
	h.PSN, h.Ack, h.Credit = r.nxt, r.expect, credit
	if t == descriptors.FrameAck {
		h.Extent, h.Offset, h.Message = uint32(r.have), uint32(r.have>>32), r.twice
	}
	e.launch(buf)
	r.owed, r.offered = false, credit
	return true
}
