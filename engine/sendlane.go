package engine

import "github.com/trapeze-nic/trapeze/descriptors"

// lane sends what the host has just posted, if all is as it mostly is: the connection is over a
// wire that loses nothing, and no other endpoint has something to send. A run of posts is one
// publication. It returns false if something is left, which takes the way from transmit on.
func (t *transmitter) lane(ep *endpoint) bool {
	r, q := ep.rel, &ep.send
	if r == nil || r.wire == 0 || q.pushed != nil || t.events&(onReady|suspended) != 0 || t.hooks|t.waiting != 0 ||
		t.held || t.timed || t.checksum || r.broken || r.fetched ||
		r.head != r.next && !r.message(r.next-1).allCut || r.serving != nil && r.serving.due() {
		return false
	}
	for n := 0; n < transmitQuantum && t.short(ep); n++ {
	}
	t.flush()
	return q.posted() == 0
}

// short sends the next message if it is a send of one frame, from one piece of memory, for which
// there is credit and room. Else it returns false; a message that was fetched for that waits, as
// one without credit does.
func (t *transmitter) short(ep *endpoint) bool {
	r, q := ep.rel, &ep.send
	if q.posted() == 0 || r.next-r.head >= uint32(len(r.messages)) || int32(r.limit-r.numbered) <= 0 && !r.moreCredit() {
		return false
	}
	m := r.message(r.next)
	t.begin(ep, m, r.numbered)
	l, n := &m.layout, m.total
	var buf []byte
	if m.status == 0 && m.control.bits&unlikeSends == 0 && n != 0 && n >= ep.shortest && n < lendFrom &&
		n <= min(t.oneBurst, ep.maxPayload) && t.regions.inOnePiece(l) && l.pushed == nil {
		buf = t.reserve(descriptors.HeaderSize + int(n))
	}
	if buf == nil || !t.dma.movers[Transmit].Whole(int(n), 0) {
		q.fetched-- // it counts as posted
		r.fetched = true
		return false
	}
	r.stalled = false
	r.next++
	r.numbered++
	credit := head(buf, ep, m, r.nxt, 0, n, 0)
	copy(buf[descriptors.HeaderSize:], l.memory)
	t.handOver(int(n))
	ep.kind.sent(ep, m, r.nxt, 0, n, credit, false)
	return true
}
