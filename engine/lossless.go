package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// losslessVI is the kind of VIs whose messages are acknowledged, connected over a wire
// that loses nothing (SPEC.md 8.12): no frame is sent again, and the wire tells what the
// peer has placed.
type losslessVI struct{ reliableVI }

// flight are the messages that have left over a wire that loses nothing, oldest first:
// it takes frames in the order of their marks.
type flight struct {
	messages []flying // a power of two
	first    uint32   // free-running, as is next
	next     uint32
}

// flying is a message that has left.
type flying struct {
	ep   *endpoint
	era  uint32 // of ep when it left
	psn  uint32 // behind its last frame
	mark uint32 // of the wire behind its last frame
}

func (f *flight) at(i uint32) *flying { return &f.messages[i&uint32(len(f.messages)-1)] }

// push appends a message. There are as many as the wire has room for frames, for which
// memory is made once.
func (f *flight) push(m flying) {
	if n := uint32(len(f.messages)); f.next-f.first == n {
		more := make([]flying, max(2*n, windowFrames))
		for i := f.first; i != f.next; i++ {
			more[i&uint32(len(more)-1)] = *f.at(i)
		}
		f.messages = more
	}
	*f.at(f.next) = m
	f.next++
}

// wire is the number of the wire if it loses nothing, else zero.
func (c *core) wire() uint32 {
	if c.lossless == nil {
		return 0
	}
	return c.lossless.Wire()
}

// offered is the number of the wire if nothing is lost on it, else zero: a program that
// may drop frames counts as part of it. Once both sides have agreed, what such a program
// drops ends the connection.
func (c *core) offered() uint32 {
	if c.hooks&dropping != 0 {
		return 0
	}
	return c.wire()
}

// takeFlight takes note of what the peer has placed up to position taken.
func (e *Engine) takeFlight(taken uint32) {
	f := &e.flight
	for f.first != f.next {
		m := f.at(f.first)
		if int32(taken-m.mark) < 0 {
			return
		}
		f.first++
		if r := m.ep.rel; m.ep.era == m.era && r != nil && int32(m.psn-r.una) > 0 {
			r.una = m.psn
			e.unsettled.add(m.ep)
		}
	}
	e.events &^= inFlight
}

// checkWire ends the connections over a wire that has been set up anew since: what was
// under way on it is lost.
func (e *Engine) checkWire() {
	if e.lossless == nil {
		return
	}
	now := e.wire()
	if now == e.wireSeen {
		return
	}
	e.wireSeen, e.flight.first = now, e.flight.next
	e.events &^= inFlight
	for _, ep := range e.all {
		if ep != nil && ep.rel != nil && ep.rel.wire != 0 && ep.rel.wire != now {
			e.conns.fail(ep, descriptors.StatusTransportError, descriptors.ResultConnectionLost, true)
		}
	}
}

// askFlight asks the peer for an answer to the newest message under way, as nobody will
// look for a while at how far the wire is: the answer wakes whoever waits.
func (e *Engine) askFlight() {
	if e.events&inFlight == 0 {
		return
	}
	f := &e.flight
	for i := f.next; i != f.first; i-- {
		m := f.at(i - 1)
		if r := m.ep.rel; r != nil && m.ep.era == m.era {
			if r.pending == 0 && int32(m.psn-r.una) > 0 {
				e.conns.probe(m.ep, &r.liveness)
				e.tx.flush()
			}
			return
		}
	}
}

// transmit implements kind.
func (k losslessVI) transmit(ep *endpoint, budget int) bool {
	r := ep.rel
	for ; budget > 0; budget-- {
		m := r.upNext()
		if m == nil {
			return false
		}
		if o := k.tx.sendData(ep, m, r.nxt, m.cut, 0, false); o != frameSent {
			return o == frameWaiting
		}
		if ep.rel != r {
			return false
		}
	}
	return true
}

// sent implements kind.
func (k losslessVI) sent(ep *endpoint, m *sending, psn, _, n, credit uint32, _ bool) {
	r := ep.rel
	if k.tx.dropped {
		// A program was loaded after the connection was there.
		k.conns.fail(ep, descriptors.StatusTransportError, descriptors.ResultConnectionLost, true)
		return
	}
	r.nxt = psn + 1
	m.cut += n
	if m.cut == m.total {
		m.allCut, m.lastPSN = true, psn
		k.flight.push(flying{ep, ep.era, r.nxt, k.lossless.Mark()})
		k.events |= inFlight
	}
	r.ackDue, r.offered = false, credit
}

// take implements kind. Data frames come one after the other; any other order says that
// one has been lost, which is the end of the connection.
func (k losslessVI) take(ep *endpoint, h *descriptors.Header) verdict {
	r := ep.rel
	r.hear(r.clock)
	// The wire may have told more than the peer knew when it sent the frame.
	if int32(h.Ack-r.nxt) > 0 {
		return refused
	}
	r.acknowledged(h)
	switch h.Type {
	case descriptors.FrameAck:
		return taken
	case descriptors.FrameProbe:
		r.acknowledge(true)
		return taken
	case descriptors.FrameData:
	default:
		return refused
	}
	if h.PSN != r.expect || h.Message != r.done || !r.findReceipt(h) {
		return refused
	}
	if in := r.receipt(r.done); h.Offset != in.arrived() {
		return refused
	}
	return placing
}

// acknowledged takes the acknowledgement and the credit that a frame carries.
func (r *reliable) acknowledged(h *descriptors.Header) {
	r.takeCredit(h)
	if int32(h.Ack-r.una) > 0 {
		r.una = h.Ack
		r.nic.unsettled.add(r.ep)
	}
}

// arrived is how many bytes of the message have arrived.
func (in *receipt) arrived() uint32 {
	if !in.open {
		return 0
	}
	return in.received
}

// placed implements kind.
func (k losslessVI) placed(ep *endpoint, h *descriptors.Header) {
	r := ep.rel
	k.rx.receipt.take(h, k.rx.status)
	r.expect++
	r.finishReceipts()
}
