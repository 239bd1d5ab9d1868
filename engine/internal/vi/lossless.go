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
		if w.Wire() != w.seen {
			changed = w.changed()
		}
		f, taken := &w.flight, w.Taken()
		for ; f.first != f.next; f.first++ {
			m := &f.messages[f.first&uint32(len(f.messages)-1)]
			if int32(taken-m.mark) < 0 {
				break
			}
			if r := m.r; r.Ep.Era == m.era {
				r.arrivedUpTo(m.psn)
			}
		}
		if w.aloft = f.first != f.next; w.aloft {
			left = append(left, w)
		}
	}
	clear(c.wires.aloft[len(left):])
	c.wires.aloft = left
	if len(c.wires.paths) > 0 {
		if w := c.Lossless.Wire(); w != c.wires.seen {
			c.wires.seen = w
			changed = c.changedWires() || changed
		}
		c.takePaths(c.Lossless.Taken())
	}
	if len(left)+len(c.wires.paths) == 0 {
		c.Events &^= core.InFlight
	}
	if changed {
		c.failOld()
	}
}

// changed reports whether a wire has been set up anew: what was under way on it is lost.
func (w *way) changed() bool {
	now := w.Wire()
	if now == w.seen {
		return false
	}
	w.seen = now
	w.flight.first = w.flight.next
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

// AskFlight asks peers for an answer to the newest message under way. The engine does
// not look for a while at how far the wire is: the answer wakes its thread.
func (c *Transport) AskFlight() {
	for _, p := range c.wires.paths {
		if r := p.r; r != nil && p.head != p.next && r.Pending == 0 && int32(p.sends[(p.next-1)&p.Ep.Send.Mask].psn-r.Una) >= 0 {
			c.Conns.Probe(p.Ep, &r.Liveness)
			c.Tx.Flush()
		}
	}
	for _, w := range c.wires.aloft {
		for f, i := &w.flight, w.flight.next; i != f.first; i-- {
			m := f.at(i - 1)
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
	m.Cut, m.AllCut, m.LastPSN = m.Total, true, r.Nxt
	r.Nxt++
	w := r.way
	w.flight.add(flying{r, r.Ep.Era, r.Nxt, w.Mark()})
	if r.nic.Events |= core.InFlight; !w.aloft {
		w.aloft = true
		r.nic.wires.aloft = append(r.nic.wires.aloft, w)
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
		if r.path == nil {
			r.fetchAhead()
		} else {
			r.path.prepareAll()
		}
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
	aloft []*way  // with messages under way
	paths []*Path // with sends under way
	seen  uint32  // number of their wire at the last look
}

// flight are the messages that have left over a wire that loses nothing, oldest first:
// it takes frames in the order of their marks. There are about as many as the wire has room for
// frames, for which memory is made once.
type flight struct {
	messages    []flying // a power of two
	first, next uint32   // free-running: the oldest, and behind the newest
}

// firstFlight is the number of messages for which a flight has room at first.
const firstFlight = 64

func (f *flight) at(i uint32) *flying { return &f.messages[i&uint32(len(f.messages)-1)] }

func (f *flight) add(m flying) {
	if f.next-f.first == uint32(len(f.messages)) {
		f.makeRoom()
	}
	f.messages[f.next&uint32(len(f.messages)-1)] = m
	f.next++
}

// makeRoom drops the oldest messages of which frames of the peer have said that they have arrived, and those
// of connections that are over. If many stay, it makes room for twice as many.
func (f *flight) makeRoom() {
	for f.first != f.next && f.at(f.first).known() {
		f.first++
	}
	n := uint32(len(f.messages))
	if n != 0 && f.next-f.first <= n/2 {
		return
	}
	more := flight{messages: make([]flying, max(2*n, firstFlight))}
	for ; f.first != f.next; f.first++ {
		*more.at(more.next) = *f.at(f.first)
		more.next++
	}
	*f = more
}

// known reports whether nothing is to be learned from the wire about m.
func (m *flying) known() bool { return m.r.Ep.Era != m.era || int32(m.r.Una-m.psn) >= 0 }

// flying is a message that has left.
type flying struct {
	r    *reliable // its connection
	era  uint32    // of the endpoint when it left
	psn  uint32    // behind its last frame
	mark uint32    // of the wire behind its last frame
}

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

func (w *ways) leave(u *way) {
	if u.users--; u.users == 0 {
		w.all = slices.DeleteFunc(w.all, func(other *way) bool { return other == u })
	}
}
