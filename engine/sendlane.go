package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// lane sends the next message that the host has just posted, if all is as it mostly is. The
// connection is over a wire that loses nothing, and no other endpoint has something to send. The
// message is a send of one frame, from one piece of memory. Otherwise lane returns false, and
// nothing has happened: the message takes the way from transmit on, which ends the same.
func (t *transmitter) lane(ep *endpoint) bool {
	r, q := ep.rel, &ep.send
	if r == nil || r.wire == 0 || !ep.plain || q.pushed != nil || q.posted() == 0 ||
		t.events&(onReady|suspended) != 0 || t.hooks|t.waiting != 0 || t.held || t.timed || t.checksum ||
		r.broken || r.fetched || r.next-r.head >= uint32(len(r.messages)) ||
		r.head != r.next && !r.message(r.next-1).allCut || r.serving != nil && r.serving.due() {
		return false
	}
	token, st := t.regions.token(q, q.fetched)
	if st != 0 || token.Flags != 0 || token.Address%datasheet.DescriptorAlign != 0 {
		return false
	}
	// Each message has a data segment at least, or as many bytes in its place.
	host := t.regions.piece(token.Handle, ep.ptag, token.Address, datasheet.ControlSegmentSize+datasheet.DataSegmentSize, true)
	seg := datasheet.ControlAt(host)
	if seg == nil || seg.Front != 0 {
		return false
	}
	bits, immediate, n, count := seg.Control, seg.Immediate, seg.Length, uint32(seg.SegCount)
	const sound = datasheet.ControlInline | datasheet.ControlImmediate
	if bits&^sound != datasheet.OpSend || n == 0 || n > min(t.oneBurst, ep.maxTransfer, ep.maxPayload) || n >= lendFrom || n < ep.shortest ||
		int32(r.limit-r.numbered) <= 0 && !r.moreCredit() {
		return false
	}
	from := segment{token.Address + datasheet.ControlSegmentSize, token.Handle, n}
	if bits&datasheet.ControlInline == 0 {
		at := datasheet.DataSegmentAt(host[datasheet.ControlSegmentSize:])
		if from = (segment{at.Address, at.Handle, at.Length}); from.length != n || count != 1 {
			return false
		}
	} else if (n+datasheet.DataSegmentSize-1)/datasheet.DataSegmentSize != count || count > uint32(t.limits.Segments) {
		return false
	}
	payload := t.regions.piece(from.handle, ep.ptag, from.address, uint64(n), false)
	if payload == nil {
		return false
	}
	buf := t.reserve(datasheet.HeaderSize + int(n))
	if buf == nil || !t.dma.movers[Transmit].Whole(int(n), 0) {
		return false
	}
	q.fetched++
	m := r.message(r.next)
	l := &m.layout
	l.token, l.control, l.status, l.total = token, control{bits, immediate}, 0, n
	l.segments, l.at, l.base, l.eager, l.front, l.described, l.memory = append(l.segments[:0], from), 0, 0, 0, 0, nil, payload
	l.descriptor, l.stamp = seg, t.regions.stamp
	m.number, m.cut, m.begun, m.lastPSN, m.frames, m.awaits = r.numbered, 0, true, 0, datasheet.FrameData, 0
	r.stalled = false
	r.next++
	r.numbered++
	credit := head(buf, ep, m, r.nxt, 0, n, 0)
	copy(buf[datasheet.HeaderSize:], payload)
	t.handOver(int(n))
	ep.kind.sent(ep, m, r.nxt, 0, n, credit, false)
	return true
}

// piece is the n bytes that reach finds, if they are in one piece of ordinary memory of
// which that is known; else nil.
func (m *regions) piece(handle, tag uint32, address, n uint64, write bool) []byte {
	r, off := m.reach(handle, tag, address, n, write)
	if r == nil || r.eager != nil || r.device || r.epoch != m.epoch || r.whole == nil {
		return nil
	}
	return r.whole[off : off+n]
}
