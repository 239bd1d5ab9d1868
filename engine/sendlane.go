package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// sendLane sends messages of one frame past what others need.
type sendLane struct{ *transmitter }

// lane sends the next message that the host has just posted, if all is as it mostly is. The
// connection is over a wire that loses nothing, and no other endpoint has something to send. The
// message is a send of one frame, from one piece of memory. Otherwise lane returns false, and
// nothing has been sent: the message, which may be fetched by then, takes the way from transmit
// on, which ends the same.
func (t sendLane) lane(ep *endpoint) bool {
	r, q := rel(ep), &ep.send
	if r == nil || r.wire == 0 || q.posted() == 0 ||
		t.events&(onReady|suspended) != 0 || t.hooks|t.waiting != 0 || t.held || t.timed || t.checksum ||
		r.broken || r.fetched || r.next-r.head >= uint32(len(r.messages)) ||
		r.head != r.next && !r.message(r.next-1).allCut || r.serving != nil && r.serving.due() {
		return false
	}
	m := r.message(r.next)
	r.nic.begin(ep, m, r.numbered)
	n, credit, buf, how := m.total, uint32(0), []byte(nil), formWhole
	if m.status == 0 && m.control.bits&unlikeSends == 0 && n != 0 && n <= ep.maxPayload && n >= ep.shortest &&
		t.regions.inOnePiece(&m.layout) && m.pushed == nil && (int32(r.limit-r.numbered) > 0 || r.moreCredit()) {
		if r.shorts {
			credit = r.credit()
			buf, how = t.laneRoom(r, m.memory, credit, m.control.bits)
		} else if n <= min(t.oneBurst, lendFrom-1) {
			buf = t.reserve(&ep.remote.mac, datasheet.HeaderSize+int(n))
		}
	}
	if buf == nil || !t.dma.movers[Transmit].Whole(int(n), 0) {
		q.fetched-- // it counts as posted
		r.fetched = true
		return false
	}
	r.stalled = false
	r.next++
	r.numbered++
	if how == formWhole {
		credit = head(buf, ep, m, r.nxt, 0, n, 0)
		copy(buf[datasheet.HeaderSize:], m.memory)
		t.handOver(int(n))
	} else {
		t.sendShort(r, buf, m.memory, how, credit)
	}
	losslessVI{reliableVI{r.nic}}.sent(ep, m, r.nxt, 0, n, credit, false)
	return true
}
