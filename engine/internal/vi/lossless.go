package vi

import (
	"slices"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// losslessVI is the kind of VIs whose messages are acknowledged, connected over a wire
// that loses nothing (SPEC.md 8.12): no frame is sent again, and the wire tells what the
// peer has placed.
type losslessVI struct{ Reliable }

// TakeFlights takes note of what peers have placed, and of wires that were set up anew.
func (c *Transport) TakeFlights() {
	changed, moved := c.changedWires(), c.wires.heard
	for _, w := range c.wires.all {
		taken := w.Taken()
		moved, w.taken = moved || taken != w.taken, taken
	}
	if !moved && !changed {
		return // thousands of connections may have messages under way
	}
	left := c.wires.flying[:0]
	c.wires.heard = false
	for _, r := range c.wires.flying {
		if rel(r.Ep) != r {
			continue // the connection is over
		}
		if r.Wire == r.way.seen {
			r.takenUpTo(r.way.taken)
		}
		if r.flying = r.Una != r.Nxt; r.flying {
			left = append(left, r)
		}
	}
	clear(c.wires.flying[len(left):])
	if c.wires.flying = left; len(left) == 0 {
		c.Events &^= core.InFlight
	}
	if changed {
		c.failOld()
	}
}

// look looks at what peers have taken.
func (w *ways) look() {
	for _, u := range w.all {
		if taken := u.Look(false); taken != u.looked {
			u.looked, w.moved = taken, true
		}
	}
}

// takeTaken takes note of what peers had placed at that look.
func (c *Transport) takeTaken() {
	c.wires.moved = false
	for _, r := range c.wires.flying {
		if rel(r.Ep) == r && r.Wire == r.way.seen {
			r.takenUpTo(r.way.looked)
		}
	}
}

// takenUpTo takes note that the peer has placed the frames before a mark of the wire.
func (r *reliable) takenUpTo(taken uint32) {
	if r.path != nil {
		r.path.reap(taken)
	}
	for n := r.head; n != r.next && r.taken(r.message(n), taken); n++ {
	}
	if r.head != r.next && r.arrived(r.message(r.head)) {
		r.nic.Unsettled.Add(r.Ep)
	}
	if s := r.serving; s != nil {
		for n := s.head; n != s.next && r.taken(s.answer(n), taken); n++ {
		}
	}
}

// taken takes note of m, if the peer has placed all of it.
func (r *reliable) taken(m *core.Sending, taken uint32) bool {
	if !m.AllCut || int32(taken-m.Mark) < 0 {
		return false
	}
	r.arrivedUpTo(m.LastPSN + 1)
	return true
}

// fly notes that messages of the connection are under way.
func (r *reliable) fly() {
	r.flying = true
	r.nic.wires.flying = append(r.nic.wires.flying, r)
	r.nic.Events |= core.InFlight
}

// changed reports whether a wire has been set up anew: what was under way on it is lost.
func (w *way) changed() bool {
	now := w.Wire()
	if now == w.seen {
		return false
	}
	w.seen = now
	return true
}

// changedWires reports whether a wire has been set up anew.
func (c *Transport) changedWires() (changed bool) {
	for _, w := range c.wires.all {
		changed = w.changed() || changed
	}
	return changed
}

// CheckWires ends the connections over wires that have been set up anew since.
func (c *Transport) CheckWires() {
	if c.changedWires() {
		c.failOld()
	}
}

// failOld does so once that has been noted.
func (c *Transport) failOld() {
	for _, ep := range c.Living {
		if rel(ep) != nil && rel(ep).Wire != 0 && rel(ep).Wire != rel(ep).way.seen {
			c.Conns.Fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
		}
	}
}

// AskFlight asks peers for an answer to the newest message under way on each wire. The engine does
// not look for a while at how far the wire is: the answer wakes its thread.
func (c *Transport) AskFlight() {
	for _, w := range c.wires.all {
		var last *reliable
		for _, r := range c.wires.flying {
			if r.way == w && rel(r.Ep) == r && r.Una != r.Nxt && (last == nil || int32(r.lastMark-last.lastMark) > 0) {
				last = r
			}
		}
		if last != nil && last.Pending == 0 {
			c.Conns.Probe(last.Ep, &last.Liveness)
			c.Tx.Flush()
		}
	}
}

func (k losslessVI) Sent(ep *core.Endpoint, m *core.Sending, psn, _, n, credit uint32, _ bool) {
	r := rel(ep)
	if k.Tx.Dropped {
		// A program was loaded after the connection was there.
		k.Conns.Fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
		return
	}
	if m.Cut += n; m.Cut == m.Total {
		r.Nxt = psn
		r.left(m)
	} else {
		r.Nxt = psn + 1
	}
	r.Tell(credit)
}

// left takes note that the last frame of m, which has the next number, has gone onto the wire.
func (r *reliable) left(m *core.Sending) {
	m.Cut, m.AllCut, m.LastPSN, m.Mark = m.Total, true, r.Nxt, r.way.Mark()
	r.Nxt++
	if r.lastMark = m.Mark; !r.flying {
		r.fly()
	}
}

// Take implements core.Delivery. Data frames come one after the other; any other order says that
// one has been lost, which is the end of the connection.
func (k losslessVI) Take(ep *core.Endpoint, h *datasheet.Header, _ []byte) core.Verdict {
	r := rel(ep)
	if v := r.takeControl(h); v != core.Placing {
		return v
	}
	if h.PSN != r.Expect || h.Message != r.Done {
		return core.Refused
	}
	if h.Type != datasheet.FrameData {
		return r.takeRDMA(h, 0)
	}
	if !r.findReceipt(h) || h.Offset != r.receipt(r.Done).Received {
		return core.Refused
	}
	return core.Placing
}

// Posted implements core.Delivery: the peer finds in a word how much credit it has.
func (k losslessVI) Posted(ep *core.Endpoint) {
	if r := rel(ep); r != nil {
		r.giveCredit()
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
	if int32(psn-r.Una) > 0 {
		r.Una = psn
		r.nic.Unsettled.Add(r.Ep)
	}
}

func (k losslessVI) Placed(ep *core.Endpoint, h *datasheet.Header) {
	r := rel(ep)
	if h.Type != datasheet.FrameData {
		r.placedRDMA(h, 0)
		return
	}
	k.Rx.Receipt.Take(h, k.Rx.Status)
	r.Expect++
	r.finishReceipts()
}

// tells reports whether a short frame, which both ends know, can tell what the connection has to. Ack and Credit may be ahead
// of those in its last frame by less than 2^16.
func (r *reliable) tells(credit uint32) bool {
	return credit-r.Offered < 1<<16 && r.Expect-r.Told < 1<<16
}

func (k *Transport) Clear() { k.wires = ways{} }

// use has one more connection use a wire, whose number is seen.
func (w *ways) use(wire core.Lossless, seen uint32) *way {
	for _, u := range w.all {
		if u.Lossless == wire {
			u.users++
			return u
		}
	}
	u := &way{Lossless: wire, seen: seen, users: 1}
	w.all = append(w.all, u)
	return u
}

func (w *ways) leave(u *way) {
	if u.users--; u.users == 0 {
		w.all = slices.DeleteFunc(w.all, func(other *way) bool { return other == u })
	}
}
