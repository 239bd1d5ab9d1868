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
	changed, left := false, c.wires.aloft[:0]
	for _, w := range c.wires.aloft {
		if changed = w.changed() || changed; !w.takeFlight() {
			left = append(left, w)
		}
	}
	clear(c.wires.aloft[len(left):])
	if c.wires.aloft = left; len(left) == 0 {
		c.Events &^= core.InFlight
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
		if r := m.r; r.Ep.Era == m.era {
			r.arrivedUpTo(m.psn)
		}
	}
	w.flight = flight{messages: w.flight.messages[:0]}
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
	w.flight = flight{messages: w.flight.messages[:0]}
	return true
}

// CheckWires ends the connections over wires that have been set up anew since.
func (c *Transport) CheckWires() {
	changed := false
	for _, w := range c.wires.all {
		changed = w.changed() || changed
	}
	if changed {
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

// AskFlight asks peers for an answer to the newest message under way. The engine does
// not look for a while at how far the wire is: the answer wakes its thread.
func (c *Transport) AskFlight() {
	for _, w := range c.wires.aloft {
		for _, m := range slices.Backward(w.flight.messages[w.flight.first:]) {
			if r := m.r; r.Ep.Era == m.era {
				if r.Pending == 0 && int32(m.psn-r.Una) > 0 {
					c.Conns.Probe(r.Ep, &r.Liveness)
					c.Tx.Flush()
				}
				break
			}
		}
	}
}

// Sent implements core.Delivery.
func (k losslessVI) Sent(ep *core.Endpoint, m *core.Sending, psn, _, n, credit uint32, _ bool) {
	r := rel(ep)
	if k.Tx.Dropped {
		// A program was loaded after the connection was there.
		k.Conns.Fail(ep, datasheet.StatusTransportError, datasheet.ResultConnectionLost, true)
		return
	}
	r.Nxt = psn + 1
	m.Cut += n
	if m.Cut == m.Total {
		m.AllCut, m.LastPSN = true, psn
		w := r.way
		if f := &w.flight; len(f.messages) == cap(f.messages) && f.first > len(f.messages)/2 {
			f.messages, f.first = f.messages[:copy(f.messages, f.messages[f.first:])], 0
		}
		w.flight.messages = append(w.flight.messages, flying{r, ep.Era, r.Nxt, w.Mark()})
		k.Events |= core.InFlight
		if !w.aloft {
			w.aloft = true
			k.wires.aloft = append(k.wires.aloft, w)
		}
	}
	r.Tell(credit)
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
		r.fetchAhead()
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

// Placed implements core.Delivery.
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

// way is a wire that loses nothing: that of the port, or the one to a peer.
type way struct {
	core.Lossless
	seen   uint32 // its number at the last look
	users  int    // connections over it
	flight flight
	aloft  bool // it is in ways.aloft
}

// ways are those over which there are connections.
type ways struct {
	all   []*way
	aloft []*way // with messages under way
}

// flight are the messages that have left over a wire that loses nothing, oldest first:
// it takes frames in the order of their marks. There are about as many as the wire has room for
// frames, for which memory is made once.
type flight struct {
	messages []flying
	first    int // the oldest of them
}

// flying is a message that has left.
type flying struct {
	r    *reliable // its connection
	era  uint32    // of the endpoint when it left
	psn  uint32    // behind its last frame
	mark uint32    // of the wire behind its last frame
}

// Clear forgets the wires.
func (k *Transport) Clear() { *k.wires = ways{} }

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

// leave ends what use began.
func (w *ways) leave(u *way) {
	if u.users--; u.users == 0 {
		w.all = slices.DeleteFunc(w.all, func(other *way) bool { return other == u })
	}
}
