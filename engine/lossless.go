package engine

import (
	"slices"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// losslessVI is the kind of VIs whose messages are acknowledged, connected over a wire
// that loses nothing (SPEC.md 8.12): no frame is sent again, and the wire tells what the
// peer has placed.
type losslessVI struct{ reliableVI }

// takeFlights takes note of what peers have placed, and of wires that were set up anew.
func (c *transport) takeFlights() {
	changed, left := false, c.wires.aloft[:0]
	for _, w := range c.wires.aloft {
		if changed = w.changed() || changed; !w.takeFlight() {
			left = append(left, w)
		}
	}
	clear(c.wires.aloft[len(left):])
	if c.wires.aloft = left; len(left) == 0 {
		c.events &^= inFlight
	}
	if changed {
		c.failOld()
	}
}

// takeFlight takes note of what the peer has placed. It reports whether that is all.
func (w *way) takeFlight() bool {
	taken := w.Taken()
	for f := &w.flight; f.first < len(f.messages); f.first++ {
		m := &f.messages[f.first]
		if int32(taken-m.mark) < 0 {
			return false
		}
		if r := rel(m.ep); m.ep.era == m.era && r != nil {
			r.arrivedUpTo(m.psn)
		}
	}
	w.flight.clear()
	w.aloft = false
	return true
}

// changed reports whether a wire has been set up anew: what was under way on it is lost.
func (w *way) changed() bool {
	now := w.Wire()
	if now == w.seen {
		return false
	}
	w.seen = now
	w.flight.clear()
	return true
}

// checkWires ends the connections over wires that have been set up anew since.
func (c *transport) checkWires() {
	changed := false
	for _, w := range c.wires.all {
		changed = w.changed() || changed
	}
	if changed {
		c.failOld()
	}
}

// failOld does so once that has been noted.
func (c *transport) failOld() {
	for _, ep := range c.living {
		if rel(ep) != nil && rel(ep).wire != 0 && rel(ep).wire != rel(ep).way.seen {
			c.conns.fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
		}
	}
}

// askFlight asks peers for an answer to the newest message under way. The engine does
// not look for a while at how far the wire is: the answer wakes its thread.
func (c *transport) askFlight() {
	for _, w := range c.wires.aloft {
		for _, m := range slices.Backward(w.flight.messages[w.flight.first:]) {
			if r := rel(m.ep); r != nil && m.ep.era == m.era {
				if r.pending == 0 && int32(m.psn-r.una) > 0 {
					c.conns.probe(m.ep, &r.liveness)
					c.tx.flush()
				}
				break
			}
		}
	}
}

// sent implements kind.
func (k losslessVI) sent(ep *endpoint, m *sending, psn, _, n, credit uint32, _ bool) {
	r := rel(ep)
	if k.tx.dropped {
		// A program was loaded after the connection was there.
		k.conns.fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
		return
	}
	r.nxt = psn + 1
	m.cut += n
	if m.cut == m.total {
		m.allCut, m.lastPSN = true, psn
		w := r.way
		w.flight.push(flying{ep, ep.era, r.nxt, w.Mark()})
		k.events |= inFlight
		if !w.aloft {
			w.aloft = true
			k.wires.aloft = append(k.wires.aloft, w)
		}
	}
	r.tell(credit)
}

// take implements kind. Data frames come one after the other; any other order says that
// one has been lost, which is the end of the connection.
func (k losslessVI) take(ep *endpoint, h *datasheet.Header, _ []byte) verdict {
	r := rel(ep)
	if v := r.takeControl(h); v != placing {
		return v
	}
	if h.PSN != r.expect || h.Message != r.done {
		return refused
	}
	if h.Type != datasheet.FrameData {
		return r.takeRDMA(h, 0)
	}
	if !r.findReceipt(h) || h.Offset != r.receipt(r.done).received {
		return refused
	}
	return placing
}

// posted implements kind: the peer finds in a word how much credit it has.
func (k losslessVI) posted(ep *endpoint) {
	if rel(ep) != nil {
		rel(ep).fetchAhead()
		rel(ep).giveCredit()
	}
}

// acknowledged takes the acknowledgement and the credit that a frame carries.
func (r *reliable) acknowledged(ack, credit uint32) {
	r.heardAck, r.heardCredit = ack, credit
	r.takeCredit(credit)
	r.arrivedUpTo(ack)
}

// arrivedUpTo takes note that the frames below psn are where they belong.
func (r *reliable) arrivedUpTo(psn uint32) {
	if int32(psn-r.una) > 0 {
		r.una = psn
		r.nic.unsettled.add(r.ep)
	}
}

// placed implements kind.
func (k losslessVI) placed(ep *endpoint, h *datasheet.Header) {
	r := rel(ep)
	if h.Type != datasheet.FrameData {
		r.placedRDMA(h, 0)
		return
	}
	k.rx.receipt.take(h, k.rx.status)
	r.expect++
	r.finishReceipts()
}

// tells reports whether a short frame, which both ends know, can tell what the connection has to. Ack and Credit may be ahead
// of those in its last frame by less than 2^16.
func (r *reliable) tells(credit uint32) bool {
	return credit-r.offered < 1<<16 && r.expect-r.told < 1<<16
}
