package vi

import (
	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// A connection whose messages may be lost has a path, too, if its kind has a format: the wire loses nothing, but a message
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
	to, last := p.to, q.Posted() == 0
	if m.Control.Bits&datasheet.ControlImmediate != 0 {
		to = to.WithImmediate(m.Control.Immediate)
	}
	if first, second := k.pieces(p.Ep, m); first != nil && m.Total <= p.Ep.MaxPayload {
		if _, ok := p.line.PutPair(p.peer|uint64(uint16(u.nextSend))<<16, to, first, second, last); ok {
			if !last {
				k.Events |= core.Unflushed
			}
			u.nextSend++
			k.Progress++
			k.Count(datasheet.CounterFramesSent, 1)
			k.Count(datasheet.CounterBytesSent, uint64(m.Total))
			(Unreliable{k}).Sent(p.Ep, m, 0, 0, m.Total, 0, false)
			return true
		}
	}
	q.Fetched-- // it counts as posted
	m.Begun = false
	return false
}

// takeLoose takes a message. One that finds no receive is dropped.
func (p *Path) takeLoose(payload []byte, header uint64, b datasheet.ShortBeside) bool {
	u, k, n := p.u, p.k, uint32(len(payload))
	in := &u.in
	if uint16(b) != p.tag || in.Open || u.receive {
		return false
	}
	if p.Ep.Recv.Posted() == 0 || !k.takeReceive(p.Ep, in) {
		return false
	}
	u.receive, u.fetched = true, in.Status
	if in.Status != 0 || in.Stamp != k.Regions.Stamp || !p.lay(in, payload, b) {
		return false
	}
	u.Hear(&k.Clock)
	u.next, u.receive = ahead(u.next, uint16(header>>16))+1, false
	k.Progress++
	k.Count(datasheet.CounterFramesReceived, 1)
	k.Count(datasheet.CounterBytesReceived, uint64(n))
	k.Count(datasheet.CounterMessagesReceived, 1)
	k.format.Complete(p.Ep, &p.Ep.Recv, &in.Layout, n, b.Immediate(), immediateOf(b))
	return true
}
