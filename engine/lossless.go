package engine

import (
	"slices"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// losslessVI is the kind of VIs whose messages are acknowledged, connected over a wire
// that loses nothing (SPEC.md 8.12): no frame is sent again, and the wire tells what the
// peer has placed.
type losslessVI struct{ reliableVI }

// flight are the messages that have left over a wire that loses nothing, oldest first:
// it takes frames in the order of their marks.
type flight struct {
	messages []flying
	first    int // the oldest of them
}

// flying is a message that has left.
type flying struct {
	ep   *endpoint
	era  uint32 // of ep when it left
	psn  uint32 // behind its last frame
	mark uint32 // of the wire behind its last frame
}

// push appends a message. There are about as many as the wire has room for frames, for
// which memory is made once.
func (f *flight) push(m flying) {
	if len(f.messages) == cap(f.messages) && f.first > len(f.messages)/2 {
		f.messages, f.first = f.messages[:copy(f.messages, f.messages[f.first:])], 0
	}
	f.messages = append(f.messages, m)
}

// clearFlight forgets the messages under way.
func (c *core) clearFlight() {
	c.flight.messages, c.flight.first = c.flight.messages[:0], 0
	c.events &^= inFlight
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
func (c *core) takeFlight(taken uint32) {
	for f := &c.flight; f.first < len(f.messages); f.first++ {
		m := &f.messages[f.first]
		if int32(taken-m.mark) < 0 {
			return
		}
		if r := m.ep.rel; m.ep.era == m.era && r != nil {
			r.arrivedUpTo(m.psn)
		}
	}
	c.clearFlight()
}

// checkWire ends the connections over a wire that has been set up anew since: what was
// under way on it is lost.
func (c *core) checkWire() {
	now := c.wire()
	if now == c.wireSeen {
		return
	}
	c.wireSeen = now
	c.clearFlight()
	for _, ep := range c.living {
		if ep.rel != nil && ep.rel.wire != 0 && ep.rel.wire != now {
			c.conns.fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
		}
	}
}

// askFlight asks the peer for an answer to the newest message under way, as nobody will
// look for a while at how far the wire is: the answer wakes whoever waits.
func (c *core) askFlight() {
	for _, m := range slices.Backward(c.flight.messages[c.flight.first:]) {
		if r := m.ep.rel; r != nil && m.ep.era == m.era {
			if r.pending == 0 && int32(m.psn-r.una) > 0 {
				c.conns.probe(m.ep, &r.liveness)
				c.tx.flush()
			}
			return
		}
	}
}

// sent implements kind.
func (k losslessVI) sent(ep *endpoint, m *sending, psn, _, n, credit uint32, _ bool) {
	r := ep.rel
	if k.tx.dropped {
		// A program was loaded after the connection was there.
		k.conns.fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
		return
	}
	r.nxt = psn + 1
	m.cut += n
	if m.cut == m.total {
		m.allCut, m.lastPSN = true, psn
		k.flight.push(flying{ep, ep.era, r.nxt, k.lossless.Mark()})
		k.events |= inFlight
	}
	r.tell(credit)
}

// take implements kind. Data frames come one after the other; any other order says that
// one has been lost, which is the end of the connection.
func (k losslessVI) take(ep *endpoint, h *datasheet.Header, _ []byte) verdict {
	r := ep.rel
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
	if ep.rel != nil {
		ep.rel.fetchAhead()
		ep.rel.giveCredit()
	}
}

// acknowledged takes the acknowledgement and the credit that a frame carries.
func (r *reliable) acknowledged(h *datasheet.Header) {
	r.takeCredit(h)
	r.arrivedUpTo(h.Ack)
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
	r := ep.rel
	if h.Type != datasheet.FrameData {
		r.placedRDMA(h, 0)
		return
	}
	k.rx.receipt.take(h, k.rx.status)
	r.expect++
	r.finishReceipts()
}
